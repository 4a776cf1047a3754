#include "collector/model/steps/step_meter.h"

#include <algorithm>
#include <array>
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

void StepMeter::HostIntervals::Add(uint64_t start_ns, uint64_t end_ns, uint64_t join_ns, uint32_t name) {
  if (join_ns > 0 && !all_.empty() && start_ns >= all_.back().end_ns &&
      start_ns - all_.back().end_ns <= join_ns) {
    all_.back().end_ns = std::max(all_.back().end_ns, end_ns);
    ++all_.back().calls;
    return;
  }
  const auto later =
      std::upper_bound(all_.begin(), all_.end(), start_ns,
                       [](uint64_t start, const HostInterval& i) { return start < i.start_ns; });
  all_.insert(later, {.start_ns = start_ns, .end_ns = end_ns, .calls = 1, .name = name});
  if (all_.size() > kMost) all_.erase(all_.begin(), all_.begin() + kMost / 2);
}

void StepMeter::HostIntervals::ForgetBefore(uint64_t time_ns) {
  all_.erase(all_.begin(), std::find_if(all_.begin(), all_.end(),
                                        [&](const HostInterval& i) { return i.end_ns >= time_ns; }));
}

void StepMeter::AddSample(const HostSample& sample) {
  if (sample.since_ns > sample.time_ns) return;
  const auto later =
      std::upper_bound(samples_.begin(), samples_.end(), sample.time_ns,
                       [](uint64_t time_ns, const HostSample& s) { return time_ns < s.time_ns; });
  samples_.insert(later, sample);
  if (samples_.size() > kMost) samples_.erase(samples_.begin(), samples_.begin() + kMost / 2);
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
  MeasureParts(open, step, measured);
  silences_.looks += measured.host.looks;
  silences_.loading += measured.host.loading_looks;
  NoteHostPhases(open, step, measured.phases);
  return measured;
}

void StepMeter::MeasureParts(const OpenOperations& open, const PendingStep& step, Measured& measured) const {
  const StepWindow window{
      .start_ns = step.start_ns,
      .end_ns = step.end_ns,
      .operations = open.From(step.begin),
      .own = static_cast<size_t>(step.end - step.begin),
      .previous_launch_ns = step.previous_launch_ns,
      .between_ns = step.begin > open.Begin() && !step.after_others ? open.forgotten_until_ns() : 0,
      .host = {.blocked = blocked_.all(),
               .memory = memory_.all(),
               .input = input_.all(),
               .calls = calls_.all(),
               .samples = samples_,
               .loads_nothing = silences_.LoadNothing()}};
  const auto stepped = std::find_if(clock_steps_.begin(), clock_steps_.end(), [&](const ClockStep& c) {
    return c.to_ns > step.start_ns && c.from_ns < step.end_ns;
  });
  const std::optional<uint64_t> gap_ns =
      stepped == clock_steps_.end()
          ? std::nullopt
          : FindClockStep(window.operations, step.start_ns, stepped->by_ns, stepped->from_ns, stepped->to_ns);
  if (!gap_ns.has_value() || *gap_ns < step.start_ns || *gap_ns >= step.end_ns) {
    measured.record = MeasureStep(window, measured.phases, &measured.host);
  } else {
    MeasureWithout(*stepped, *gap_ns, window, measured);
  }
}

void StepMeter::MeasureWithout(const ClockStep& clock_step, uint64_t gap_ns, const StepWindow& window,
                               Measured& measured) {
  std::vector<StepOperation> moved(window.operations.begin(), window.operations.end());
  std::array<std::vector<HostInterval>, 4> host;
  for (size_t i = 0; const std::span<const HostInterval> intervals :
                     {window.host.blocked, window.host.memory, window.host.input, window.host.calls})
    host[i++].assign(intervals.begin(), intervals.end());
  std::vector<HostSample> samples(window.host.samples.begin(), window.host.samples.end());
  const auto move = [&](uint64_t& time_ns) { time_ns -= time_ns > gap_ns ? clock_step.by_ns : 0; };
  for (StepOperation& o : moved) {
    move(o.start_ns);
    move(o.end_ns);
    move(o.launch_ns);
  }
  for (std::vector<HostInterval>& intervals : host) {
    for (HostInterval& i : intervals) {
      move(i.start_ns);
      move(i.end_ns);
    }
  }
  for (HostSample& sample : samples) {
    move(sample.time_ns);
    move(sample.since_ns);
  }
  StepWindow without = window;
  without.operations = moved;
  without.host = {.blocked = host[0],
                  .memory = host[1],
                  .input = host[2],
                  .calls = host[3],
                  .samples = samples,
                  .loads_nothing = window.host.loads_nothing};
  move(without.end_ns);
  StepRecord& record = measured.record;
  record = MeasureStep(without, measured.phases, &measured.host);
  record.end_ns = window.end_ns;
  record.first_launch_ns = UINT64_MAX;
  for (const StepOperation& o : window.operations.first(window.own))
    record.first_launch_ns = std::min(record.first_launch_ns, o.launch_ns);
  record.clock_step_ns = static_cast<int64_t>(clock_step.by_ns);
}

void StepMeter::NoteHostPhases(const OpenOperations& open, const PendingStep& step,
                               const std::vector<StepPhase>& phases) {
  constexpr size_t kMostSteps = 1024;
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
  if (host_phases_.size() < kMostSteps) host_phases_.push_back(std::move(host));
}

void StepMeter::Forget(const OpenOperations& open) {
  for (HostIntervals* intervals : {&blocked_, &memory_, &input_, &calls_})
    intervals->ForgetBefore(open.forgotten_until_ns());
  // The silence in which the next step begins may have begun earlier.
  const uint64_t silent_ns = std::min(open.forgotten_until_ns(), open.last_forgotten_launch_ns());
  std::erase_if(samples_, [&](const HostSample& s) { return s.time_ns < silent_ns; });
  phase_ranges_.ForgetBefore(open.empty() ? open.last_forgotten_launch_ns()
                                          : open.At(open.Begin()).launch_ns);
}

}  // namespace gpuprobe::model
