#include "injector/core/governor.h"

namespace gpuprobe::injector {

void Governor::Init(uint32_t budget_percent, wire::DetailLevel level) noexcept {
  budget_percent_ = budget_percent;
  level_ = level;
}

wire::DetailLevel Governor::Judge(uint64_t now_ns, uint64_t cost_ns) noexcept {
  using wire::DetailLevel;
  last_ns_ = now_ns;
  if (budget_percent_ == 0 || level_ == DetailLevel::kDetailLevelOff) return level_;
  if (window_began_ns_ != 0 && now_ns >= window_began_ns_) {
    const uint64_t wall_ns = now_ns - window_began_ns_;
    if (wall_ns < kWindowNs) return level_;
    over_ = (cost_ns - cost_then_ns_) * 100 > wall_ns * budget_percent_ ? over_ + 1 : 0;
  }
  window_began_ns_ = now_ns;
  cost_then_ns_ = cost_ns;
  if (over_ < kPatience) return level_;
  over_ = 0;
  level_ = level_ == DetailLevel::kDetailLevelCallbacks ? DetailLevel::kDetailLevelOff
                                                        : DetailLevel::kDetailLevelCallbacks;
  ++reductions_;
  if (reduced_since_ns_ == 0) reduced_since_ns_ = now_ns;
  return level_;
}

}  // namespace gpuprobe::injector
