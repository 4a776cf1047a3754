#include "collector/model/steps/step_meter.h"

#include <algorithm>
#include <optional>
#include <span>

namespace gpuprobe::model {
namespace {

// The last moment before a clock was set `by_ns` forward, between two times: nothing at all happened for so
// long then. nullopt: no such gap.
std::optional<uint64_t> FindClockStep(std::span<const StepOperation> operations, uint64_t begin_ns,
                                      uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
  constexpr uint64_t kReadingErrorNs = 100'000;  // in the clock readings that show by how much
  std::vector<uint64_t> times{begin_ns};         // the work before ended then
  for (const StepOperation& o : operations) {
    for (const uint64_t time_ns : {o.launch_ns, o.start_ns, o.end_ns}) {
      if (time_ns + by_ns >= from_ns && time_ns <= to_ns + by_ns) times.push_back(time_ns);
    }
  }
  std::sort(times.begin(), times.end());
  std::optional<uint64_t> found;
  uint64_t narrowest_ns = UINT64_MAX;
  for (size_t i = 1; i < times.size(); ++i) {
    const uint64_t gap_ns = times[i] - times[i - 1];
    if (gap_ns + kReadingErrorNs < by_ns || gap_ns >= narrowest_ns || times[i] < from_ns) continue;
    narrowest_ns = gap_ns;
    found = times[i - 1];
  }
  return found;
}

}  // namespace

void StepMeter::AddBlocked(uint64_t start_ns, uint64_t end_ns) {
  const auto later =
      std::upper_bound(blocked_.begin(), blocked_.end(), start_ns,
                       [](uint64_t start, const BlockedInterval& b) { return start < b.start_ns; });
  blocked_.insert(later, {start_ns, end_ns});
  if (blocked_.size() > kMaxBlocked) blocked_.erase(blocked_.begin(), blocked_.begin() + kMaxBlocked / 2);
}

void StepMeter::NoteClockStep(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
  if (clock_steps_.size() == kMaxClockSteps) clock_steps_.erase(clock_steps_.begin());
  clock_steps_.push_back({by_ns, from_ns, to_ns});
}

void StepMeter::SetTimes(const OpenOperations& open, PendingStep& step) {
  step.start_ns = open.forgotten_until_ns();
  step.previous_launch_ns = open.last_forgotten_launch_ns();
  for (uint64_t i = open.Begin(); i < step.begin; ++i)
    step.start_ns = std::max(step.start_ns, open.At(i).end_ns);
  if (step.begin > open.Begin()) step.previous_launch_ns = open.At(step.begin - 1).launch_ns;
  step.start_ns = std::max(step.start_ns, step.earlier_end_ns);
  step.previous_launch_ns = std::max(step.previous_launch_ns, step.earlier_launch_ns);
  // Nothing ran on the device before it: the time of the steps that were left out is none of this one.
  if (step.after_others && step.earlier_end_ns == 0) step.start_ns = 0;
  if (step.start_ns == 0) {
    step.start_ns = UINT64_MAX;
    for (uint64_t i = step.begin; i < step.end; ++i)
      step.start_ns = std::min(step.start_ns, open.At(i).start_ns);
  }
  step.end_ns = step.start_ns;
  for (uint64_t i = step.begin; i < step.end; ++i) step.end_ns = std::max(step.end_ns, open.At(i).end_ns);
}

StepMeter::Measured StepMeter::Measure(const OpenOperations& open, const PendingStep& step) {
  Measured measured;
  measured.phases = PhasesOf(open.From(step.begin), static_cast<size_t>(step.end - step.begin), phase_ranges_,
                             measured.annotated);
  measured.record = RecordOf(open, step, measured.phases);
  NoteHostPhases(open, step, measured.phases);
  return measured;
}

StepRecord StepMeter::RecordOf(const OpenOperations& open, const PendingStep& step,
                               const std::vector<StepPhase>& phases) const {
  const StepWindow window{.start_ns = step.start_ns,
                          .end_ns = step.end_ns,
                          .operations = open.From(step.begin),
                          .own = static_cast<size_t>(step.end - step.begin),
                          .previous_launch_ns = step.previous_launch_ns,
                          .blocked = blocked_};
  const auto stepped = std::find_if(clock_steps_.begin(), clock_steps_.end(), [&](const ClockStep& c) {
    return c.to_ns > step.start_ns && c.from_ns < step.end_ns;
  });
  if (stepped == clock_steps_.end()) return MeasureStep(window, phases);
  const std::optional<uint64_t> gap_ns =
      FindClockStep(window.operations, step.start_ns, stepped->by_ns, stepped->from_ns, stepped->to_ns);
  if (!gap_ns.has_value() || *gap_ns < step.start_ns || *gap_ns >= step.end_ns)
    return MeasureStep(window, phases);
  return RecordWithout(*stepped, *gap_ns, window, phases);
}

StepRecord StepMeter::RecordWithout(const ClockStep& clock_step, uint64_t gap_ns, const StepWindow& window,
                                    const std::vector<StepPhase>& phases) const {
  std::vector<StepOperation> moved(window.operations.begin(), window.operations.end());
  std::vector<BlockedInterval> blocked = blocked_;
  const auto move = [&](uint64_t& time_ns) { time_ns -= time_ns > gap_ns ? clock_step.by_ns : 0; };
  for (StepOperation& o : moved) {
    move(o.start_ns);
    move(o.end_ns);
    move(o.launch_ns);
  }
  for (BlockedInterval& b : blocked) {
    move(b.start_ns);
    move(b.end_ns);
  }
  StepWindow without = window;
  without.operations = moved;
  without.blocked = blocked;
  move(without.end_ns);
  StepRecord record = MeasureStep(without, phases);
  record.end_ns = window.end_ns;
  record.first_launch_ns = UINT64_MAX;
  for (const StepOperation& o : window.operations.first(window.own))
    record.first_launch_ns = std::min(record.first_launch_ns, o.launch_ns);
  record.clock_step_ns = static_cast<int64_t>(clock_step.by_ns);
  return record;
}

void StepMeter::NoteHostPhases(const OpenOperations& open, const PendingStep& step,
                               const std::vector<StepPhase>& phases) {
  constexpr size_t kMost = 1024;
  HostPhases host{.begin_ns = open.At(step.begin).launch_ns,
                  .end_ns = step.host_end_ns != 0   ? step.host_end_ns
                            : step.end < open.End() ? open.At(step.end).launch_ns
                                                    : open.At(step.end - 1).launch_ns + 1,
                  .changes = {}};
  for (uint64_t at = step.begin; at < step.end; ++at) {
    const StepOperation& o = open.At(at);
    const StepPhase phase = phases[static_cast<size_t>(at - step.begin)];
    const uint64_t previous_ns =
        std::exchange(host.last_launch_ns, std::max(host.last_launch_ns, o.launch_ns));
    if (o.work != WorkClass::kCompute || (!host.changes.empty() && host.changes.back().second == phase))
      continue;
    host.changes.emplace_back(host.changes.empty() ? host.begin_ns : previous_ns + 1, phase);
  }
  if (host_phases_.size() < kMost) host_phases_.push_back(std::move(host));
}

void StepMeter::Forget(const OpenOperations& open) {
  const auto old = std::find_if(blocked_.begin(), blocked_.end(), [&open](const BlockedInterval& b) {
    return b.end_ns >= open.forgotten_until_ns();
  });
  blocked_.erase(blocked_.begin(), old);
  phase_ranges_.ForgetBefore(open.empty() ? open.last_forgotten_launch_ns()
                                          : open.At(open.Begin()).launch_ns);
}

}  // namespace gpuprobe::model
