#include "collector/timeline/occupancy_level.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gpuprobe::timeline {

void OccupancyLevel::Say(uint32_t ordinal, Device& device, uint64_t time_ns) {
  device.last_ns = time_ns;
  if (device.running.empty()) device.share = 0;  // whatever rounding left
  const Counter counter{.kind = CounterKind::kOccupancy, .device = ordinal, .part = 0};
  sink_.OnCounter(counter, time_ns, 100 * std::clamp(device.share, 0.0, 1.0));
}

void OccupancyLevel::EndUntil(uint32_t ordinal, Device& device, uint64_t time_ns) {
  while (!device.running.empty() && device.running.top().end_ns <= time_ns) {
    const uint64_t end_ns = device.running.top().end_ns;
    while (!device.running.empty() && device.running.top().end_ns == end_ns) {
      device.share -= device.running.top().share;
      device.running.pop();
    }
    // The next kernel may follow without a gap, and says the level of this moment.
    if (end_ns < time_ns || time_ns == UINT64_MAX) Say(ordinal, device, end_ns);
  }
}

void OccupancyLevel::Add(uint32_t ordinal, uint64_t start_ns, uint64_t end_ns, double share) {
  const auto [it, added] = devices_.try_emplace(ordinal);
  Device& device = it->second;
  if (added) {
    const Counter counter{.kind = CounterKind::kOccupancy, .device = ordinal, .part = 0};
    sink_.DescribeCounter(counter, absl::StrCat("GPU ", ordinal, " SM occupancy (by launch geometry)"),
                          Unit::kPercent);
  }
  if (start_ns < device.last_ns) return;  // came too late
  EndUntil(ordinal, device, start_ns);
  device.running.push({.end_ns = end_ns, .share = share});
  device.share += share;
  Say(ordinal, device, start_ns);
}

void OccupancyLevel::Finish() {
  for (auto& [ordinal, device] : devices_) EndUntil(ordinal, device, UINT64_MAX);
}

}  // namespace gpuprobe::timeline
