#include "collector/model/steps/communication_timing.h"

#include <algorithm>
#include <optional>

namespace gpuprobe::model {
namespace {

// Times at which something computes, one after the other.
class Busy {
 public:
  explicit Busy(std::vector<std::pair<uint64_t, uint64_t>> intervals) {
    if (!std::is_sorted(intervals.begin(), intervals.end())) std::sort(intervals.begin(), intervals.end());
    uint64_t length_ns = 0;
    for (const auto& [start_ns, end_ns] : intervals) {
      if (!parts_.empty() && start_ns <= parts_.back().end_ns) {
        Part& last = parts_.back();
        length_ns += end_ns > last.end_ns ? end_ns - last.end_ns : 0;
        last.end_ns = std::max(last.end_ns, end_ns);
        last.until_ns = length_ns;
      } else {
        length_ns += end_ns - start_ns;
        parts_.push_back({start_ns, end_ns, length_ns});
      }
    }
  }
  uint64_t Within(uint64_t start_ns, uint64_t end_ns) const { return Before(end_ns) - Before(start_ns); }

 private:
  struct Part {
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t until_ns;  // busy time up to its end
  };
  uint64_t Before(uint64_t time_ns) const {
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), time_ns,
                                        [](uint64_t time, const Part& part) { return time < part.start_ns; });
    if (after == parts_.begin()) return 0;
    const Part& part = *std::prev(after);
    return part.until_ns - (part.end_ns - std::min(time_ns, part.end_ns));
  }
  std::vector<Part> parts_;
};

}  // namespace

bool CommunicationTiming::Knows(uint32_t token) const { return names_.contains(token); }

void CommunicationTiming::SetName(uint32_t token, const Name& name) {
  if (names_.size() < kMaxNames) names_[token] = name;
}

void CommunicationTiming::AddStep(std::span<const StepOperation> operations, size_t own,
                                  std::span<const StepPhase> phases, const StepRecord& record,
                                  std::optional<uint64_t> index) {
  std::vector<std::pair<uint64_t, uint64_t>> compute;
  std::optional<uint64_t> backward_ns;
  bool any = false;
  for (size_t i = 0; i < operations.size(); ++i) {
    const StepOperation& o = operations[i];
    any = any || (i < own && o.work == WorkClass::kCommunication);
    if (o.work != WorkClass::kCompute || o.start_ns >= record.end_ns) continue;
    compute.emplace_back(o.start_ns, o.end_ns);
    if (i < own && phases[i] == StepPhase::kBackward && !backward_ns.has_value()) backward_ns = o.start_ns;
  }
  Sums step{.steps = 1, .forward_compute_ns = record.phase_busy_ns(StepPhase::kForward), .calls = {}};
  const Busy busy(any ? std::move(compute) : std::vector<std::pair<uint64_t, uint64_t>>());
  absl::flat_hash_map<uint32_t, uint32_t> seen;
  for (size_t i = 0; i < own; ++i) {
    const StepOperation& o = operations[i];
    if (o.work != WorkClass::kCommunication) continue;
    if (step.calls.size() == kMaxCalls) break;
    Call& call = step.calls[Key(o.coarse, seen[o.coarse]++)];
    const uint64_t hidden_ns = busy.Within(o.start_ns, o.end_ns);
    call.token = o.token;
    ++call.steps;
    call.time_ns += o.end_ns - o.start_ns;
    call.hidden_ns += hidden_ns;
    if (backward_ns.has_value()) {
      ++call.backward_steps;
      call.after_backward_ns += static_cast<int64_t>(o.start_ns - *backward_ns);
    }
    if (phases[i] != StepPhase::kForward) continue;
    ++call.forward_steps;
    call.forward_ns += o.end_ns - o.start_ns;
    call.forward_hidden_ns += hidden_ns;
  }
  Sums& sums = index.has_value() ? early_.Of(*index, record.total_ns()) : sums_;
  sums.Add(step);
}

void CommunicationTiming::Call::Merge(const Call& later) {
  token = later.token;
  steps += later.steps;
  time_ns += later.time_ns;
  hidden_ns += later.hidden_ns;
  backward_steps += later.backward_steps;
  after_backward_ns += later.after_backward_ns;
  forward_steps += later.forward_steps;
  forward_ns += later.forward_ns;
  forward_hidden_ns += later.forward_hidden_ns;
}

void CommunicationTiming::Sums::Add(const Sums& later) {
  steps += later.steps;
  forward_compute_ns += later.forward_compute_ns;
  for (const auto& [key, call] : later.calls) {
    if (calls.size() >= kMaxCalls && !calls.contains(key)) continue;
    calls[key].Merge(call);
  }
}

void CommunicationTiming::KeepFrom(uint64_t index) { early_.KeepFrom(index, sums_); }

}  // namespace gpuprobe::model
