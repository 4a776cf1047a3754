#include "collector/timeline/process_clock.h"

#include <algorithm>
#include <cmath>

#include "collector/model/records.h"
#include "collector/model/statistics/whole_number.h"

namespace gpuprobe::timeline {
namespace {

// Less is what two readings of the clocks differ by anyway.
constexpr int64_t kClockStepNs = 200'000;

int64_t OffsetOf(const v1::Batch& batch) {
  return static_cast<int64_t>(batch.clock().realtime_ns() - batch.clock().monotonic_ns());
}

// When the clock was set forward before this batch was sealed, after `from_ns`: nothing has times in between,
// so it is the middle of the longest silence.
uint64_t SilenceIn(const v1::Batch& batch, uint64_t from_ns) {
  std::vector<uint64_t> times = {from_ns, batch.clock().realtime_ns()};
  const auto note = [&](uint64_t time_ns) {
    if (time_ns > from_ns && time_ns < batch.clock().realtime_ns()) times.push_back(time_ns);
  };
  // A batch whose columns are of different lengths is refused by those who read it next.
  model::ForEachLaunch(batch, [&](const model::LaunchRecord& r) { note(r.time_ns); }).IgnoreError();
  model::ForEachKernel(batch, [&](const model::KernelRecord& r) {
    note(r.start_ns);
    note(r.end_ns);
  }).IgnoreError();
  std::sort(times.begin(), times.end());
  uint64_t middle_ns = from_ns;
  uint64_t longest_ns = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    if (times[i] - times[i - 1] <= longest_ns) continue;
    longest_ns = times[i] - times[i - 1];
    middle_ns = times[i - 1] + longest_ns / 2;
  }
  return middle_ns;
}

}  // namespace

void ForwardSteps::Note(const v1::Batch& batch) {
  if (batch.restated() || batch.clock().realtime_ns() == 0) return;
  const int64_t step_ns = known_ ? OffsetOf(batch) - offset_ns_ : 0;
  if (step_ns <= -kClockStepNs) set_back_ns_ += static_cast<uint64_t>(-step_ns);
  if (step_ns >= kClockStepNs) {
    const auto by_ns = static_cast<uint64_t>(step_ns);
    steps_.push_back({.from_ns = SilenceIn(batch, last_clock_ns_ - set_back_ns_) + set_back_ns_,
                      .total_ns = by_ns + (steps_.empty() ? 0 : steps_.back().total_ns)});
  }
  known_ = true;
  offset_ns_ = OffsetOf(batch);
  last_clock_ns_ = batch.clock().realtime_ns() + set_back_ns_;
}

uint64_t ForwardSteps::Before(uint64_t line_ns) const {
  uint64_t total_ns = 0;
  for (const Step& step : steps_) {
    if (step.from_ns <= line_ns) total_ns = step.total_ns;
  }
  return total_ns;
}

void ProcessClock::BeginBatch(const v1::Batch& batch, uint64_t device_until_ns) {
  if (batch.restated() || batch.clock().realtime_ns() == 0) return;
  const int64_t step_ns = known_ ? OffsetOf(batch) - offset_ns_ : 0;
  const bool set_back = step_ns <= -kClockStepNs;
  if (set_back) continuous_.SetBack(batch, static_cast<uint64_t>(-step_ns), last_clock_ns_, device_until_ns);
  if (continuous_.moved()) continuous_.BeginBatch(batch, set_back);
  known_ = true;
  offset_ns_ = OffsetOf(batch);
  last_clock_ns_ = continuous_.Now(batch.clock().realtime_ns());
}

uint64_t ProcessClock::Align(uint64_t line_ns) const {
  if (!forward_.empty()) line_ns -= forward_.Before(line_ns);
  if (line_.ahead_ns == 0 && line_.drift == 0) return line_ns;
  const auto since = static_cast<double>(static_cast<int64_t>(line_ns - origin_ns_));
  return line_ns -
         static_cast<uint64_t>(model::SignedWholeNumber(std::round(line_.ahead_ns + line_.drift * since)));
}

}  // namespace gpuprobe::timeline
