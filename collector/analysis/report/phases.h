// A phase: the time that one NVTX range took on the host and on the device, over all of its instances.
#pragma once

#include <cstdint>
#include <string>

#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

struct PhaseReport {
  std::string name;
  std::string path;  // names from the outermost range on, joined by '/'
  int depth = 0;
  model::Summary gpu_ns;
  model::Summary host_ns;
  uint64_t unclosed = 0;
  uint64_t first_start_ns = 0;
};

}  // namespace gpuprobe::analysis
