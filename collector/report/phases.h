// A phase: the time that one NVTX range took on the host and on the device, over all of its instances.
#pragma once

#include <cstdint>
#include <string>

#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

struct PhaseReport {
  std::string name;
  std::string path;
  int depth = 0;
  model::Summary gpu_ns;
  model::Summary host_ns;
  uint64_t unclosed = 0;
  uint64_t first_start_ns = 0;

  static constexpr void Declare(auto& fields) {
    fields("name", &PhaseReport::name, "of the range");
    fields("path", &PhaseReport::path, "names from the outermost range on, joined by `/`");
    fields("depth", &PhaseReport::depth, "ranges around it");
    fields("time_ns", &PhaseReport::gpu_ns,
           "**GPU time** of an instance: the union of the GPU work launched in it, on whichever thread and "
           "whenever it ran");
    fields("host_time_ns", &PhaseReport::host_ns, "length of the range itself");
    fields("unclosed", &PhaseReport::unclosed, "instances that were open at the end");
    fields.Unwritten(&PhaseReport::first_start_ns);
  }
};

}  // namespace gpuprobe::analysis
