#include "collector/timeline/lanes.h"

namespace gpuprobe::timeline {

bool Lanes::Fits(Lane& lane, uint64_t start_ns, uint64_t end_ns) const {
  if (start_ns < lane.last_start_ns) return false;
  while (!lane.open_ends_ns.empty() && lane.open_ends_ns.back() <= start_ns) lane.open_ends_ns.pop_back();
  if (lane.open_ends_ns.empty()) return true;
  return form_ == Form::kNested && end_ns <= lane.open_ends_ns.back();
}

std::optional<uint32_t> Lanes::Place(uint64_t start_ns, uint64_t end_ns) {
  for (uint32_t i = 0; i <= lanes_.size() && i < kMaxLanes; ++i) {
    if (i == lanes_.size()) lanes_.emplace_back();
    Lane& lane = lanes_[i];
    if (!Fits(lane, start_ns, end_ns)) continue;
    lane.last_start_ns = start_ns;
    lane.open_ends_ns.push_back(end_ns);
    return i;
  }
  return std::nullopt;
}

}  // namespace gpuprobe::timeline
