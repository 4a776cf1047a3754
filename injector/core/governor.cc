#include "injector/core/governor.h"

namespace gpuprobe::injector {

void Governor::Init(uint32_t budget_percent, wire::DetailLevel least, uint64_t window_ns) noexcept {
  budget_percent_ = budget_percent;
  window_ns_ = window_ns;
  least_ = level_ = static_cast<int32_t>(least);
}

wire::DetailLevel Governor::Judge(uint64_t now_ns, uint64_t cost_ns) noexcept {
  if (last_ns_ != 0 && now_ns > last_ns_ && level_ != 0) reduced_ns_ += now_ns - last_ns_;
  last_ns_ = now_ns;
  constexpr auto kFull = static_cast<int32_t>(wire::DetailLevel::kDetailLevelFull);
  constexpr auto kWindows = static_cast<int32_t>(wire::DetailLevel::kDetailLevelWindows);
  constexpr auto kOff = static_cast<int32_t>(wire::DetailLevel::kDetailLevelOff);
  if (budget_percent_ == 0 || level_ == kOff) return level();
  if (window_began_ns_ == 0 || now_ns < window_began_ns_) {
    window_began_ns_ = now_ns;
    cost_then_ns_ = cost_ns;
    return level();
  }
  const uint64_t wall_ns = now_ns - window_began_ns_;
  if (wall_ns < window_ns_) return level();
  const uint64_t spent_percent_ns = (cost_ns - cost_then_ns_) * 100;
  window_began_ns_ = now_ns;
  cost_then_ns_ = cost_ns;
  if (spent_percent_ns > wall_ns * budget_percent_) {
    if (gave_back_ && calm_needed_ < kMaxCalmWindows) calm_needed_ *= 2;
    gave_back_ = false;
    calm_ = 0;
    level_ = level_ == kFull ? kWindows : level_ + 1;
    ++reductions_;
  } else if (spent_percent_ns * 4 < wall_ns * budget_percent_ && level_ > least_) {
    if (++calm_ >= calm_needed_) {
      calm_ = 0;
      gave_back_ = true;
      level_ = level_ == kWindows ? least_ : level_ - 1;
    }
  } else {
    calm_ = 0;
  }
  return level();
}

}  // namespace gpuprobe::injector
