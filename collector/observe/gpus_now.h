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
  std::string name;         // "NVIDIA H100 80GB HBM3"; empty: not known
};

// Empty without NVML, or if the driver does not answer within `patience`: the call is then left to itself.
std::vector<GpuNow> LookAtGpus(std::chrono::milliseconds patience,
                               const std::string& library = "libnvidia-ml.so.1");

struct DriverNow {
  enum class State : uint8_t {
    kNoLibrary,  // NVML is not there
    kRefuses,    // NVML cannot reach the driver
    kSilent,     // no answer within the patience
    kAnswers,    // only then are the members below known
  };
  State state = State::kNoLibrary;
  int error = 0;  // NVML's, where it refuses
  std::string version;
  uint32_t cuda = 0;  // the newest that it supports, 13000 for 13.0; 0: not known
  std::vector<GpuNow> gpus;
};
DriverNow LookAtDriver(std::chrono::milliseconds patience, const std::string& library = "libnvidia-ml.so.1");

}  // namespace gpuprobe::observe
