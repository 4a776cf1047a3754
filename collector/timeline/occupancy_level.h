// How much of a device's warp slots the kernels that run at each moment can occupy, as a counter.
//
// Kernels come in the order in which they start. Where several run at once their shares add up, to at most
// 100 %.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "collector/timeline/events.h"

namespace gpuprobe::timeline {

class OccupancyLevel {
 public:
  explicit OccupancyLevel(EventSink& sink) : sink_(sink) {}

  void Add(uint32_t device, uint64_t start_ns, uint64_t end_ns, double share);
  // Lets running kernels end.
  void Finish();

 private:
  struct Running {
    uint64_t end_ns;
    double share;
    bool operator>(const Running& other) const { return end_ns > other.end_ns; }
  };
  struct Device {
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
    double share = 0;
    uint64_t last_ns = 0;
  };
  void EndUntil(uint32_t ordinal, Device& device, uint64_t time_ns);
  void Say(uint32_t ordinal, Device& device, uint64_t time_ns);

  EventSink& sink_;
  std::map<uint32_t, Device> devices_;
};

}  // namespace gpuprobe::timeline
