// Whether the program runs on the simulated GPU node, where kernels take time but compute nothing, so that
// results cannot be verified.
#pragma once

#include <dlfcn.h>

namespace gpuprobe::samples {

inline bool OnSimulatedNode() { return dlsym(RTLD_DEFAULT, "gpusim_version") != nullptr; }

}  // namespace gpuprobe::samples
