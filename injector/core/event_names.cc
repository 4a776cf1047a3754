#include "injector/core/event_names.h"

namespace gpuprobe::injector {

constinit EventNames event_names;

}  // namespace gpuprobe::injector
