// The seam between the simulated driver and the simulated cuBLAS: kernels whose duration follows from their
// work.
#pragma once

#include <cstdint>
#include <string>

namespace gpusim {

struct MatmulLaunch {
  std::string kernel_name;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block = 128;
  uint64_t duration_ns = 0;  // unless GPUSIM_KERNELS names the kernel
};

// Launches the kernel as cuLaunchKernelEx does; a CUresult.
int LaunchMatmulKernel(void* stream, const MatmulLaunch& launch);

}  // namespace gpusim
