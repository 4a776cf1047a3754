#include "collector/records/process_clock.h"

#include <algorithm>
#include <cstdlib>

#include "collector/records/rows.h"

namespace gpuprobe::model {
namespace {

// Two readings of the clocks differ by less than this anyway.
constexpr int64_t kClockStepNs = 200'000;
constexpr size_t kMaxClockSteps = 1024;

// When the clock was set forward before this batch was sealed, after `from_ns`: nothing has times in between,
// so it is the middle of the longest silence.
uint64_t SilenceIn(const v1::Batch& batch, uint64_t from_ns) {
  std::vector<uint64_t> times = {from_ns, batch.clock().realtime_ns()};
  const auto note = [&](uint64_t time_ns) {
    if (time_ns > from_ns && time_ns < batch.clock().realtime_ns()) times.push_back(time_ns);
  };
  // The batch's records have been read: its columns agree in length.
  ForEachLaunch(batch, [&](const LaunchRecord& r) { note(r.time_ns); }).IgnoreError();
  ForEachKernel(batch, [&](const KernelRecord& r) {
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

int64_t ProcessClock::StepOf(const v1::Batch& batch) const {
  if (!known_ || batch.clock().realtime_ns() == 0) return 0;
  const uint64_t offset = batch.clock().realtime_ns() - batch.clock().monotonic_ns();
  return static_cast<int64_t>(offset - static_cast<uint64_t>(offset_ns_));
}

void ProcessClock::BeginBatch(const v1::Batch& batch, const v1::ClockPair& start,
                              uint64_t last_device_end_ns) {
  ++batches_;
  device_.BeginBatch(batch, start);
  line_.SetDeviceAhead(device_.ahead_ns());
  const int64_t step_ns = StepOf(batch);
  const bool set_back = step_ns <= -kClockStepNs && step_ns != INT64_MIN;
  if (set_back) line_.SetBack(batch, static_cast<uint64_t>(-step_ns), last_ns_, last_device_end_ns);
  if (line_.moved()) line_.BeginBatch(batch, set_back);
}

void ProcessClock::BeginDeviceRecords(const v1::Batch& batch) {
  const int64_t step_ns = StepOf(batch);
  if (step_ns >= kClockStepNs) steps_.Note(static_cast<uint64_t>(step_ns), last_ns_, Now(batch));
}

ProcessClock::Forward ProcessClock::EndBatch(const v1::Batch& batch) {
  Forward forward;
  if (batch.clock().realtime_ns() == 0) return forward;
  if (known_) {
    const int64_t step_ns = StepOf(batch);
    if (step_ns != INT64_MIN && std::abs(step_ns) > std::abs(largest_step_ns_)) largest_step_ns_ = step_ns;
    // If the clock was set back, later times are shifted forward.
    if (step_ns >= kClockStepNs && forward_.size() < kMaxClockSteps) {
      forward = {.by_ns = static_cast<uint64_t>(step_ns), .from_ns = last_ns_, .to_ns = Now(batch)};
      const uint64_t back_ns = line_.Now(0);
      forward_.push_back({.batch = batches_ - 1,
                          .from_ns = SilenceIn(batch, last_ns_ - back_ns) + back_ns,
                          .total_ns = step_ns + (forward_.empty() ? 0 : forward_.back().total_ns)});
    }
  }
  known_ = true;
  offset_ns_ = static_cast<int64_t>(batch.clock().realtime_ns() - batch.clock().monotonic_ns());
  last_ns_ = Now(batch);
  return forward;
}

int64_t ProcessClock::ShiftIn(uint64_t batch) const {
  int64_t shift_ns = 0;
  for (const ForwardStep& step : forward_) {
    if (step.batch <= batch) shift_ns = step.total_ns;
  }
  return shift_ns;
}

uint64_t ProcessClock::SetForwardBefore(uint64_t line_ns) const {
  int64_t total_ns = 0;
  for (const ForwardStep& step : forward_) {
    if (step.from_ns <= line_ns) total_ns = step.total_ns;
  }
  return static_cast<uint64_t>(total_ns);
}

}  // namespace gpuprobe::model
