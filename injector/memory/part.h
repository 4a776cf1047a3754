// The memory part as the backbone sees it. See injector/parts.h.
#pragma once

#include "injector/parts.h"

namespace gpuprobe::injector {

extern const Part kMemoryPart;

}  // namespace gpuprobe::injector
