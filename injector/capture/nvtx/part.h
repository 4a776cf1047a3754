// The NVTX part, for the list of parts.
#pragma once

#include "injector/core/part.h"

namespace gpuprobe::injector {

extern const Part kNvtxPart;

}  // namespace gpuprobe::injector
