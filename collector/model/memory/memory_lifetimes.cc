#include "collector/model/memory/memory_lifetimes.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace gpuprobe::model {
namespace {

// Which of the step's phases this instant of the host's timeline is in, as they follow one another.
size_t PartAt(const HostPhases& step, uint64_t time_ns) {
  const auto after = std::upper_bound(step.changes.begin(), step.changes.end(), time_ns,
                                      [](uint64_t time, const auto& change) { return time < change.first; });
  return after == step.changes.begin() ? 0 : static_cast<size_t>(after - step.changes.begin()) - 1;
}

StepPhase PhaseAt(const HostPhases& step, uint64_t time_ns) {
  return step.changes.empty() ? StepPhase::kOther : step.changes[PartAt(step, time_ns)].second;
}

}  // namespace

void MemoryLifetimes::Add(uint64_t time_ns, uint64_t address, uint64_t bytes, bool release, bool by_nccl) {
  arrived_in_order_ = arrived_in_order_ && (arrived_.empty() || arrived_.back().time_ns <= time_ns);
  arrived_.push_back(
      {.time_ns = time_ns, .address = address, .bytes = bytes, .release = release, .by_nccl = by_nccl});
  // No step ends: events are treated as if they came before the first step.
  if (arrived_.size() + waiting_.size() < kMaxWaiting) return;
  Take(UINT64_MAX);
  steps_.clear();
  for (const Event& event : waiting_) {
    if (event.release) {
      Freed(event.address);
    } else {
      const Lifetime own = classed_ == 0 ? Lifetime::kBeforeSteps : Lifetime::kOther;
      Made(event, event.by_nccl ? Lifetime::kNccl : own, StepPhase::kOther);
    }
  }
  taken_ += waiting_.size();
  waiting_.clear();
  open_.clear();
}

void MemoryLifetimes::Take(uint64_t time_ns) {
  if (!std::exchange(arrived_in_order_, true))
    std::stable_sort(arrived_.begin(), arrived_.end(),
                     [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  const auto end = std::upper_bound(arrived_.begin(), arrived_.end(), time_ns,
                                    [](uint64_t time, const Event& event) { return time < event.time_ns; });
  for (auto event = arrived_.begin(); event != end; ++event) {
    if (!event->release) {
      open_[event->address] = taken_ + waiting_.size();
    } else if (const auto open = open_.find(event->address); open != open_.end()) {
      waiting_[static_cast<size_t>(open->second - taken_)].freed_ns = event->time_ns;
      open_.erase(open);
    }
    waiting_.push_back(*event);
  }
  arrived_.erase(arrived_.begin(), end);
}

void MemoryLifetimes::EndStep(const HostPhases& step) {
  Take(step.end_ns);
  if (step.changes.empty() || (!steps_.empty() && step.begin_ns < steps_.back().begin_ns)) return;
  steps_.push_back(step);
  if (steps_.size() < 2) return;
  ClassStep(steps_[0], steps_[1]);
  steps_.pop_front();
}

void MemoryLifetimes::ClassStep(const HostPhases& step, const HostPhases& next) {
  uint64_t step_peak = 0;
  LevelPeaks::ByPhase by_phase;
  size_t begun_phases = 0;
  const auto in_phase = [&](StepPhase phase) {
    std::optional<uint64_t>& peak = by_phase[static_cast<size_t>(phase)];
    peak = std::max(peak.value_or(0), live_bytes_);
  };
  const auto begin_phases = [&](uint64_t until_ns) {
    for (; begun_phases < step.changes.size() && step.changes[begun_phases].first <= until_ns; ++begun_phases)
      in_phase(step.changes[begun_phases].second);
  };
  const auto highest = [&](uint64_t time_ns) {
    step_peak = std::max(step_peak, live_bytes_);
    if (begun_phases > 0) in_phase(step.changes[begun_phases - 1].second);
    if (live_bytes_ > peak_.bytes)
      peak_ = {.step = classed_, .time_ns = time_ns, .bytes = live_bytes_, .parts = by_lifetime_};
  };
  bool begun = false;
  while (!waiting_.empty() && waiting_.front().time_ns <= step.last_launch_ns) {
    const Event event = waiting_.front();
    const auto open = open_.find(event.address);
    if (open != open_.end() && open->second == taken_) open_.erase(open);
    waiting_.pop_front();
    ++taken_;
    const bool before = classed_ == 0 && event.time_ns < step.begin_ns;
    if (!before && !std::exchange(begun, true)) highest(step.begin_ns);
    if (!before) begin_phases(event.time_ns);
    if (event.release) {
      Freed(event.address);
      continue;
    }
    allocations_ += before ? 0 : 1;
    const Lifetime own = before ? Lifetime::kBeforeSteps : LifetimeOf(event, step, next);
    if (own == Lifetime::kFromBackward && classed_ >= kFirst) from_backward_bytes_ += event.bytes;
    Made(event, event.by_nccl ? Lifetime::kNccl : own, PhaseAt(step, event.time_ns));
    if (!before) highest(event.time_ns);
  }
  if (!begun) highest(step.begin_ns);
  begin_phases(UINT64_MAX);
  step_peaks_.AddStep(step_peak, by_phase);
  ++classed_;
}

bool MemoryLifetimes::IsWorkspace(uint64_t bytes, StepPhase phase) {
  // What cuBLAS recommends, and PyTorch makes for it: on Hopper and later, and before.
  constexpr uint64_t kSizes[] = {32 << 20, 8320 << 10};
  if (std::find(std::begin(kSizes), std::end(kSizes), bytes) == std::end(kSizes)) return false;
  if (phase == StepPhase::kForward && workspace_bytes_ == 0) {
    workspace_bytes_ = bytes;
    return true;
  }
  return phase == StepPhase::kBackward && bytes == workspace_bytes_ &&
         !std::exchange(backward_workspace_, true);
}

Lifetime MemoryLifetimes::LifetimeOf(const Event& event, const HostPhases& step, const HostPhases& next) {
  const StepPhase phase = PhaseAt(step, event.time_ns);
  if (event.freed_ns > next.last_launch_ns) {
    if (classed_ >= kFirst) return Lifetime::kKept;
    if (IsWorkspace(event.bytes, phase)) return Lifetime::kWorkspace;
    return phase == StepPhase::kBackward ? Lifetime::kFirstStepsBackward : Lifetime::kFirstSteps;
  }
  const bool in_step = event.freed_ns < step.end_ns;
  if (in_step && PartAt(step, event.freed_ns) == PartAt(step, event.time_ns)) return Lifetime::kWithinPhase;
  switch (phase) {
    case StepPhase::kForward:
      return Lifetime::kFromForward;
    case StepPhase::kBackward:
      return Lifetime::kFromBackward;
    default:
      return Lifetime::kOther;
  }
}

void MemoryLifetimes::Made(const Event& event, Lifetime lifetime, StepPhase phase) {
  if (const auto live = live_.find(event.address); live != live_.end()) {
    ++missed_frees_;
    Removed(live->second);
    live_.erase(live);
  }
  if (live_.size() >= kMaxLive) {
    ++not_followed_;
    return;
  }
  Live& live = live_[event.address];
  live = {.bytes = event.bytes, .lifetime = lifetime, .size = {event.bytes, phase}};
  live_bytes_ += event.bytes;
  by_lifetime_[static_cast<size_t>(lifetime)] += event.bytes;
  if (lifetime != Lifetime::kKept) return;
  Kept& kept = KeptOf(live, phase);
  ++kept.allocations;
  kept.bytes += event.bytes;
  if (kept.steps == 0 || kept.last_step != classed_) ++kept.steps;
  kept.last_step = classed_;
}

MemoryLifetimes::Kept& MemoryLifetimes::KeptOf(Live& live, StepPhase phase) {
  const uint64_t rounded = live.bytes <= (uint64_t{1} << 62) ? std::bit_ceil(live.bytes) : live.bytes;
  for (const uint64_t bytes : {live.bytes, rounded}) {
    live.size = {bytes, phase};
    if (const auto found = kept_.find(live.size); found != kept_.end()) return found->second;
    if (bytes == live.bytes && kept_.size() < kMaxSizes) return kept_[live.size];
  }
  // A power of two for each phase is the most that is added.
  if (kept_.size() >= 2 * kMaxSizes) live.size = {0, phase};
  return kept_[live.size];
}

void MemoryLifetimes::Freed(uint64_t address) {
  const auto live = live_.find(address);
  if (live == live_.end()) {
    ++unknown_frees_;
    return;
  }
  Removed(live->second);
  live_.erase(live);
}

void MemoryLifetimes::Removed(const Live& live) {
  live_bytes_ -= live.bytes;
  by_lifetime_[static_cast<size_t>(live.lifetime)] -= live.bytes;
  if (live.lifetime != Lifetime::kKept) return;
  const auto kept = kept_.find(live.size);
  if (kept == kept_.end()) return;
  --kept->second.allocations;
  kept->second.bytes -= live.bytes;
}

}  // namespace gpuprobe::model
