// The NCCL part's interface to the backbone. See injector/parts.h.
#pragma once

#include "injector/parts.h"

namespace gpuprobe::injector {

extern const Part kNcclPart;

}  // namespace gpuprobe::injector
