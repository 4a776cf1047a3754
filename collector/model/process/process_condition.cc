#include "collector/model/process/process_condition.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

using Reason = ProcessCondition::Reason;

// The kernel's letters; 'T' is stopped by a signal, 't' by a tracer. 'Z' is not the end: a main thread may
// leave its process to the others, and the observer knows which it is.
Reason ReasonOf(const v1::ProcessObservation& o) {
  if (o.has_end()) return Reason::kEnded;
  if (o.frozen()) return Reason::kFrozen;
  if (o.state() == 'T') return Reason::kStopped;
  if (o.state() == 't') return Reason::kTraced;
  return Reason::kNone;
}

// A log may claim anything: no sum of a second is longer than a thousand CPUs make it.
uint64_t Bounded(uint64_t value) { return std::min(value, uint64_t{1} << 50); }

}  // namespace

void ProcessCondition::Sums::Add(const Sums& other) {
  observed_ns += other.observed_ns;
  cpu_ns += other.cpu_ns;
  run_delay_ns += other.run_delay_ns;
  major_faults += other.major_faults;
  quota_periods += other.quota_periods;
  throttled_periods += other.throttled_periods;
  memory_stall_ns += other.memory_stall_ns;
}

void ProcessCondition::Apply(const v1::ProcessObservation& o, uint64_t time_ns) {
  last_ns_ = std::max(last_ns_, time_ns);
  const Reason reason = ReasonOf(o);
  const bool goes_on = halted_ && halts_.back().reason == reason;
  halted_ = reason != Reason::kNone;
  if (halted_ && !goes_on) {
    halts_.push_back({.reason = reason,
                      .since_ns = time_ns,
                      .until_ns = time_ns,
                      .stop_signal = o.stop_signal(),
                      .tracer = o.tracer().substr(0, kMaxText)});
    if (halts_.size() > kMaxHalts) halts_.pop_front();
  }
  if (halted_) halts_.back().until_ns = time_ns;
  if (reason == Reason::kEnded) {
    end_ = o.end();
    return;
  }
  if (o.state() != 0) {
    state_ = static_cast<char>(o.state() < 128 ? o.state() : 0);
    wait_channel_ = o.wait_channel().substr(0, kMaxText);
    waits_for_ = o.waits_for().substr(0, kMaxText);
    python_ = o.python();
    if (python_.frames_size() > kMaxFrames)
      python_.mutable_frames()->DeleteSubrange(kMaxFrames, python_.frames_size() - kMaxFrames);
    swapped_bytes_ = o.swapped_bytes();
  }
  quota_millicpus_ = o.quota_millicpus();
  Recent recent{.time_ns = time_ns, .state = state_, .sums = {}};
  if (o.interval_ns() != 0) {
    recent.sums = {.observed_ns = Bounded(o.interval_ns()),
                   .cpu_ns = Bounded(o.cpu_ns()),
                   .run_delay_ns = Bounded(o.run_delay_ns()),
                   .major_faults = Bounded(o.major_faults()),
                   .quota_periods = Bounded(o.quota_periods()),
                   .throttled_periods = Bounded(o.throttled_periods()),
                   .memory_stall_ns = Bounded(o.memory_stall_ns())};
  }
  totals_.Add(recent.sums);
  recent_.push_back(recent);
  if (recent_.size() > kMaxRecent) recent_.pop_front();
}

void ProcessCondition::Rejoin() {
  if (halts_.empty() || halts_.back().reason != Reason::kEnded) return;
  halts_.pop_back();
  halted_ = false;
  end_.Clear();
}

ProcessCondition::Sums ProcessCondition::Since(uint64_t time_ns) const {
  Sums sums;
  for (const Recent& r : recent_) {
    // Half of its interval or more is within.
    if (r.time_ns >= time_ns + r.sums.observed_ns / 2) sums.Add(r.sums);
  }
  return sums;
}

double ProcessCondition::ShareOfState(char state, uint64_t time_ns) const {
  size_t all = 0;
  size_t so = 0;
  for (const Recent& r : recent_) {
    if (r.time_ns < time_ns) continue;
    ++all;
    so += r.state == state ? 1 : 0;
  }
  return all == 0 ? 0 : static_cast<double>(so) / static_cast<double>(all);
}

}  // namespace gpuprobe::model
