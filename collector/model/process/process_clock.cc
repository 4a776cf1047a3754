#include "collector/model/process/process_clock.h"

#include <cstdlib>

namespace gpuprobe::model {
namespace {

// Less is what two readings of the clocks differ by anyway.
constexpr int64_t kClockStepNs = 200'000;
constexpr size_t kMaxClockSteps = 1024;

}  // namespace

int64_t ProcessClock::StepOf(const v1::Batch& batch) const {
  if (!known_ || batch.clock().realtime_ns() == 0) return 0;
  const uint64_t offset = batch.clock().realtime_ns() - batch.clock().monotonic_ns();
  return static_cast<int64_t>(offset - static_cast<uint64_t>(offset_ns_));
}

void ProcessClock::BeginBatch(const v1::Batch& batch, const v1::ClockPair& start,
                              uint64_t last_device_end_ns) {
  device_.BeginBatch(batch, start);
  line_.SetDeviceAhead(device_.ahead_ns());
  const int64_t step_ns = StepOf(batch);
  const bool set_back = step_ns <= -kClockStepNs && step_ns != INT64_MIN;
  if (set_back)
    line_.SetBack(batch, static_cast<uint64_t>(-step_ns), totals_.last_clock_ns, last_device_end_ns);
  if (line_.moved()) line_.BeginBatch(batch, set_back);
}

void ProcessClock::BeginDeviceRecords(const v1::Batch& batch) {
  const int64_t step_ns = StepOf(batch);
  if (step_ns >= kClockStepNs) steps_.Note(static_cast<uint64_t>(step_ns), totals_.last_clock_ns, Now(batch));
}

ProcessClock::Forward ProcessClock::EndBatch(const v1::Batch& batch) {
  Forward forward;
  if (batch.clock().realtime_ns() == 0) return forward;
  if (known_) {
    const int64_t step_ns = StepOf(batch);
    if (step_ns != INT64_MIN && std::abs(step_ns) > std::abs(totals_.clock_step_ns))
      totals_.clock_step_ns = step_ns;
    // Set back, what comes after is put where it would be.
    if (step_ns >= kClockStepNs && shifts_.size() < kMaxClockSteps) {
      forward = {
          .by_ns = static_cast<uint64_t>(step_ns), .from_ns = totals_.last_clock_ns, .to_ns = Now(batch)};
      const int64_t before = shifts_.empty() ? 0 : shifts_.back().second;
      shifts_.emplace_back(totals_.batches - 1, before + step_ns);
    }
  }
  known_ = true;
  offset_ns_ = static_cast<int64_t>(batch.clock().realtime_ns() - batch.clock().monotonic_ns());
  totals_.last_clock_ns = Now(batch);
  return forward;
}

int64_t ProcessClock::ShiftIn(uint64_t batch) const {
  int64_t shift = 0;
  for (const auto& [from, by] : shifts_) {
    if (from <= batch) shift = by;
  }
  return shift;
}

}  // namespace gpuprobe::model
