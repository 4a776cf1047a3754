#include "collector/model/steps/communication_timing.h"

#include <algorithm>
#include <optional>
#include <set>

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

// A part of a step that goes forward and then backward.
struct MicroBatch {
  uint64_t forward = 0;  // kernels
  bool backward = false;
  std::map<uint32_t, std::vector<uint32_t>> calls;  // tokens by coarse token
  std::set<uint32_t> forward_calls;                 // coarse tokens
};

std::vector<MicroBatch> MicroBatchesOf(std::span<const StepOperation> own,
                                       std::span<const StepPhase> phases) {
  std::vector<MicroBatch> parts(1);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].work == WorkClass::kCommunication) {
      parts.back().calls[own[i].coarse].push_back(own[i].token);
      if (phases[i] == StepPhase::kForward) parts.back().forward_calls.insert(own[i].coarse);
      continue;
    }
    if (own[i].work != WorkClass::kCompute) continue;
    if (phases[i] != StepPhase::kForward) {
      parts.back().backward = true;  // or what may be of it
      continue;
    }
    if (parts.back().backward) parts.emplace_back();
    ++parts.back().forward;
  }
  return parts;
}

bool GoAsFar(const std::vector<MicroBatch>& parts) {
  // The first one may prepare something, such as setting gradients to zero.
  constexpr double kAlike = 0.9;
  const auto [least, most] =
      std::minmax_element(parts.begin(), parts.end(),
                          [](const MicroBatch& a, const MicroBatch& b) { return a.forward < b.forward; });
  return least->forward > 0 &&
         static_cast<double>(least->forward) >= kAlike * static_cast<double>(most->forward);
}

// Whether it makes the same calls. After the last backward pass, more may follow: the gradients' norm.
bool Makes(const MicroBatch& part, uint32_t coarse, const std::vector<uint32_t>& calls, bool is_last) {
  const auto found = part.calls.find(coarse);
  if (found == part.calls.end() || part.forward_calls.contains(coarse)) return false;
  const std::vector<uint32_t>& made = found->second;
  if (made.size() < calls.size() || (made.size() > calls.size() && !is_last)) return false;
  return std::equal(calls.begin(), calls.end(), made.begin());
}

// The calls of a step that every micro-batch makes alike, outside of forward.
std::map<uint32_t, CommunicationTiming::Repeats> RepeatsOf(std::span<const StepOperation> own,
                                                           std::span<const StepPhase> phases) {
  std::map<uint32_t, CommunicationTiming::Repeats> repeats;
  const std::vector<MicroBatch> parts = MicroBatchesOf(own, phases);
  if (parts.size() < 2 || !GoAsFar(parts)) return repeats;
  for (const auto& [coarse, calls] : parts.front().calls) {
    bool alike = true;
    for (const MicroBatch& part : parts) alike = alike && Makes(part, coarse, calls, &part == &parts.back());
    if (alike) repeats[coarse] = {.steps = 1, .times = parts.size()};
  }
  return repeats;
}

// Where an operation that is communication is launched, by the kernels around it.
enum class Place : uint8_t { kElsewhere, kAheadOfForward, kAmidForward, kAmidBackward };

class PlacesOfCalls {
 public:
  PlacesOfCalls(std::span<const StepOperation> own, std::span<const StepPhase> phases)
      : places_(own.size(), Place::kElsewhere) {
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].work == WorkClass::kCommunication) AddCall(i);
      if (own[i].work == WorkClass::kCompute) AddKernel(phases[i]);
      begun_ = begun_ || own[i].work == WorkClass::kCopyToDevice;
    }
    EndPass();
  }
  Place operator[](size_t i) const { return places_[i]; }

 private:
  struct Call {
    size_t place = 0;
    size_t before = 0;  // the pass's kernels before it
    bool begun = false;
  };

  void AddCall(size_t place) {
    const Call call{.place = place, .before = kernels_, .begun = begun_};
    if (kernels_ > 0 && (pass_ == StepPhase::kForward || pass_ == StepPhase::kBackward))
      calls_.push_back(call);
    if (begun_) ahead_.push_back({.place = place, .before = 0, .begun = true});
  }
  void AddKernel(StepPhase phase) {
    if (phase != pass_) {
      EndPass();
      pass_ = phase;
      if (pass_ == StepPhase::kForward) calls_ = ahead_;
      if (pass_ == StepPhase::kBackward) begun_ = true;
      if (pass_ == StepPhase::kOptimizer) begun_ = false;
    }
    ahead_.clear();
    ++kernels_;
  }
  void EndPass() {
    for (const Call& call : calls_) {
      const size_t after = kernels_ - call.before;
      if (after == 0 || 4 * after < kernels_) continue;
      if (4 * call.before >= kernels_) {
        places_[call.place] = pass_ == StepPhase::kForward ? Place::kAmidForward : Place::kAmidBackward;
      } else if (pass_ == StepPhase::kForward && call.begun) {
        places_[call.place] = Place::kAheadOfForward;
      }
    }
    calls_.clear();
    kernels_ = 0;
  }

  std::vector<Place> places_;
  std::vector<Call> calls_;  // of the pass
  std::vector<Call> ahead_;  // since the last kernel
  size_t kernels_ = 0;       // of the pass
  StepPhase pass_ = StepPhase::kOther;
  // The step, by a copy of input or a backward pass: what comes before may still be of the update before.
  bool begun_ = false;
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
  Sums step{.steps = 1,
            .forward_compute_ns = record.phase_busy_ns(StepPhase::kForward),
            .calls = {},
            .repeats = {}};
  const Busy busy(any ? std::move(compute) : std::vector<std::pair<uint64_t, uint64_t>>());
  const PlacesOfCalls places(operations.first(any ? own : 0), phases);
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
    call.amid_forward_steps += places[i] == Place::kAmidForward ? 1 : 0;
    call.amid_backward_steps += places[i] == Place::kAmidBackward ? 1 : 0;
    call.ahead_of_forward_steps += places[i] == Place::kAheadOfForward ? 1 : 0;
    if (phases[i] != StepPhase::kForward) continue;
    ++call.forward_steps;
    call.forward_ns += o.end_ns - o.start_ns;
    call.forward_hidden_ns += hidden_ns;
  }
  if (any) step.repeats = RepeatsOf(operations.first(own), phases);
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
  amid_forward_steps += later.amid_forward_steps;
  amid_backward_steps += later.amid_backward_steps;
  ahead_of_forward_steps += later.ahead_of_forward_steps;
}

void CommunicationTiming::Sums::Add(const Sums& later) {
  steps += later.steps;
  forward_compute_ns += later.forward_compute_ns;
  for (const auto& [key, call] : later.calls) {
    if (calls.size() >= kMaxCalls && !calls.contains(key)) continue;
    calls[key].Merge(call);
  }
  for (const auto& [coarse, repeated] : later.repeats) {
    repeats[coarse].steps += repeated.steps;
    repeats[coarse].times += repeated.times;
  }
}

void CommunicationTiming::KeepFrom(uint64_t index) { early_.KeepFrom(index, sums_); }

}  // namespace gpuprobe::model
