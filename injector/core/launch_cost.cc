#include "injector/core/launch_cost.h"

#include <algorithm>

namespace gpuprobe::injector {

constinit LaunchCost launch_cost;
constinit std::atomic<uint32_t> timed_launches{kTimeSome};

namespace {

// The value that one in `of` values is smaller than. Reorders `values`.
template <typename Value>
Value Quantile(Value* values, size_t count, size_t of) noexcept {
  std::nth_element(values, values + count / of, values + count);
  return values[count / of];
}
template <typename Value>
Value Middle(Value* values, size_t count) noexcept {
  return Quantile(values, count, 2);
}

// The median, and its standard error from the median distance to it, so that a turn in which something else
// had the processor does not decide. Reorders `values`.
double MiddleAndError(double* values, int count, double* middle) noexcept {
  *middle = Middle(values, static_cast<size_t>(count));
  double distances[LaunchCost::kTurns];
  for (int i = 0; i < count; ++i) distances[i] = __builtin_fabs(values[i] - *middle);
  constexpr double kOfNormal =
      1.4826 * 1.2533;  // deviation from its middle; error of a middle from deviation
  return kOfNormal * Middle(distances, static_cast<size_t>(count)) / __builtin_sqrt(count);
}

}  // namespace

void LaunchCost::Took(uint64_t entered_ns, uint64_t duration_ns, uint64_t since_last_ns,
                      uint64_t weight) noexcept {
  launch_ns_ += std::min(duration_ns, kMaxLaunchNs) * weight;
  launches_ += weight;
  if (recorded_) recorded_launches_ += weight;
  if (entered_ns >= last_turn_end_ns_) return;
  for (int i = 0; i < turn_count_; ++i) {
    const Turn& turn = turns_[i];
    if (entered_ns < turn.begin_ns || entered_ns >= turn.end_ns) continue;
    if (!turn.recorded) ++unrecorded_launches_;
    const bool inside = turn.whole && entered_ns >= turn.begin_ns + since_last_ns + kEdgeNs &&
                        entered_ns + kEdgeNs < turn.end_ns;
    if (since_last_ns != 0 && inside && kept_[i] < kKept)
      gaps_[i][kept_[i]++] = static_cast<uint32_t>(since_last_ns);
  }
}

bool LaunchCost::WantsComparison(uint64_t now_ns) noexcept {
  if (compared_) return false;
  if (looked_ns_ != 0 && now_ns >= looked_ns_ && now_ns - looked_ns_ < kLookNs) return false;
  const uint64_t passed_ns = looked_ns_ == 0 || now_ns < looked_ns_ ? 0 : now_ns - looked_ns_;
  const uint64_t spent_ns = launch_ns_ - launch_ns_then_;
  looked_ns_ = now_ns;
  launch_ns_then_ = launch_ns_;
  return passed_ns != 0 && spent_ns * 100 > passed_ns * kWorthPercent;
}

void LaunchCost::Compare(const Turn* turns, int count, uint64_t callbacks_ns) noexcept {
  compared_ = true;
  callbacks_ns_ = callbacks_ns;
  launches_before_ = launches_;
  recorded_before_ = recorded_launches_;
  turn_count_ = std::min(count, 2 * kTurns);
  for (int i = 0; i < turn_count_; ++i) {
    turns_[i] = turns[i];
    last_turn_end_ns_ = std::max(last_turn_end_ns_, turns[i].end_ns);
  }
}

uint64_t LaunchCost::cupti_ns() const noexcept {
  Pace pace{};
  const uint64_t called_ns = callbacks_ns_ * (launches_ - launches_before_);
  if (!Compared(&pace) || pace.recorded_ns < pace.unrecorded_ns) return called_ns;
  return called_ns + (pace.recorded_ns - pace.unrecorded_ns) * (recorded_launches_ - recorded_before_);
}

bool LaunchCost::Compared(Pace* pace) const noexcept {
  double paces[2][kTurns];
  int turns[2] = {};
  for (int i = 0; i < turn_count_; ++i) {
    if (kept_[i] < kFewest) continue;
    uint32_t sorted[kKept];
    std::copy_n(gaps_[i], kept_[i], sorted);
    const int kind = turns_[i].recorded ? 1 : 0;
    paces[kind][turns[kind]++] = static_cast<double>(Quantile(sorted, kept_[i], kUndisturbed));
  }
  if (turns[0] < kFewestTurns || turns[1] < kFewestTurns) return false;
  double middles[2];
  double variance = 0;  // of their difference
  for (int kind = 0; kind < 2; ++kind) {
    const double error = MiddleAndError(paces[kind], turns[kind], &middles[kind]);
    variance += error * error;
  }
  *pace = {static_cast<uint64_t>(middles[1]), static_cast<uint64_t>(middles[0]),
           static_cast<uint64_t>(__builtin_sqrt(variance))};
  return true;
}

}  // namespace gpuprobe::injector
