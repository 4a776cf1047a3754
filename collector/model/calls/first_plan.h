// The earliest plan of a series.
#pragma once

#include <cstdint>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

// The earliest plan of a series. It opens connections and waits for ranks that still set up, so bandwidths
// leave it out, as nccl-tests calls each size once before it measures.
struct FirstPlan {
  uint64_t start_ns = UINT64_MAX;
  uint64_t time_ns = 0;

  void See(uint64_t start, uint64_t time) {
    if (start >= start_ns) return;
    start_ns = start;
    time_ns = time;
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, start_ns, time_ns);
  }
};

}  // namespace gpuprobe::model
