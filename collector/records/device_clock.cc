#include "collector/records/device_clock.h"

#include <algorithm>

#include "collector/records/rows.h"

namespace gpuprobe::model {

// Extremes of the device records of a batch.
struct DeviceClock::Seen {
  uint64_t first_start_ns = UINT64_MAX;
  uint64_t last_end_ns = 0;
  // From launch to start, of those whose launch is known.
  int64_t least_delay_ns = INT64_MAX;
  int64_t most_delay_ns = INT64_MIN;

  bool has_delay() const { return least_delay_ns != INT64_MAX; }
};

void DeviceClock::BeginBatch(const v1::Batch& batch, const v1::ClockPair& start) {
  if (decided_) return;
  NoteLaunches(batch);
  Seen seen;
  if (!Look(batch, seen)) return;
  decided_ = true;
  const v1::ClockPair& sealed = batch.clock();
  // Only if the program's clock was not set meanwhile, and its clocks are known.
  if (sealed.realtime_ns() != 0 && start.realtime_ns() != 0) {
    const uint64_t at_start = start.realtime_ns() - start.monotonic_ns();
    const uint64_t now = sealed.realtime_ns() - sealed.monotonic_ns();
    const auto set_by_ns = static_cast<int64_t>(now - at_start);
    if (set_by_ns > -kAgreesWithinNs / 2 && set_by_ns < kAgreesWithinNs / 2)
      Decide(seen, start.realtime_ns(), sealed.realtime_ns());
  }
  launches_ = {};
}

void DeviceClock::NoteLaunches(const v1::Batch& batch) {
  if (launches_.size() >= kMaxLaunches) return;
  // The main reader of these rows reports broken ones.
  const absl::Status ignored = ForEachRow<LaunchRecord>(batch, [this](const LaunchRecord& r) {
    if (launches_.size() < kMaxLaunches && r.time_ns != 0) launches_.emplace_back(r.correlation, r.time_ns);
  });
  ignored.IgnoreError();
  std::sort(launches_.begin(), launches_.end());
}

bool DeviceClock::Look(const v1::Batch& batch, Seen& seen) const {
  const auto note = [&](const auto& r) {
    if (r.start_ns == 0 || r.end_ns < r.start_ns) return;
    seen.first_start_ns = std::min(seen.first_start_ns, r.start_ns);
    seen.last_end_ns = std::max(seen.last_end_ns, r.end_ns);
    const auto launch =
        std::lower_bound(launches_.begin(), launches_.end(), std::pair{r.correlation, uint64_t{0}});
    if (launch == launches_.end() || launch->first != r.correlation) return;
    const auto delay_ns = static_cast<int64_t>(r.start_ns - launch->second);
    seen.least_delay_ns = std::min(seen.least_delay_ns, delay_ns);
    seen.most_delay_ns = std::max(seen.most_delay_ns, delay_ns);
  };
  ForEachRow<KernelRecord>(batch, note).IgnoreError();
  ForEachRow<CopyRecord>(batch, note).IgnoreError();
  ForEachRow<MemsetRecord>(batch, note).IgnoreError();
  return seen.last_end_ns != 0;
}

void DeviceClock::Decide(const Seen& seen, uint64_t start_ns, uint64_t sealed_ns) {
  const auto too_late_ns = static_cast<int64_t>(seen.last_end_ns - sealed_ns);
  const auto too_early_ns = static_cast<int64_t>(seen.first_start_ns - start_ns);
  const bool before_launch = seen.has_delay() && seen.most_delay_ns < -kAgreesWithinNs;
  if (too_late_ns <= kAgreesWithinNs && too_early_ns >= -kAgreesWithinNs && !before_launch) return;
  const int64_t bound_ns = too_late_ns > kAgreesWithinNs ? too_late_ns : too_early_ns;
  ahead_ns_ = seen.has_delay() ? seen.least_delay_ns : bound_ns;
}

}  // namespace gpuprobe::model
