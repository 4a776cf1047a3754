// What the GPUs of this host are doing at this moment, as NVML says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gpuprobe::observe {

struct GpuNow {
  uint32_t index = 0;        // as nvidia-smi counts
  uint32_t utilisation = 0;  // percent of the last second or less in which a kernel ran
  uint32_t clock_mhz = 0;    // this and the next: 0: not known
  uint32_t power_milliwatts = 0;
  std::vector<pid_t> pids;  // with a context there
};

// Empty without NVML, or if the driver does not answer within `patience`: the call is then left to itself.
std::vector<GpuNow> LookAtGpus(std::chrono::milliseconds patience,
                               const std::string& library = "libnvidia-ml.so.1");

}  // namespace gpuprobe::observe
