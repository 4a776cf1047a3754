#include "collector/model/steps/step_timeline.h"

#include <algorithm>
#include <array>
#include <utility>

#include "collector/model/steps/host_account.h"

namespace gpuprobe::model {
namespace {

// Kinds of work at an instant, by precedence: the first one present gives the instant its phase.
enum Layer : uint8_t {
  kForward,
  kBackward,
  kOptimizer,
  kOtherCompute,
  kComm,
  kToDevice,
  kOtherCopy,
  kLayers
};
constexpr int kComputeLayers = kComm;

constexpr std::array<StepPhase, kLayers> kPhaseOfLayer = {
    StepPhase::kForward,       StepPhase::kBackward, StepPhase::kOptimizer, StepPhase::kOther,
    StepPhase::kCommunication, StepPhase::kH2d,      StepPhase::kOther};

Layer LayerOf(const StepOperation& operation, StepPhase phase) {
  switch (operation.work) {
    case WorkClass::kCommunication:
      return kComm;
    case WorkClass::kCopyToDevice:
      return kToDevice;
    case WorkClass::kCopyFromDevice:
    case WorkClass::kCopyOther:
    case WorkClass::kUnseen:
      return kOtherCopy;
    case WorkClass::kCompute:
      break;
  }
  switch (phase) {
    case StepPhase::kForward:
      return kForward;
    case StepPhase::kBackward:
      return kBackward;
    case StepPhase::kOptimizer:
      return kOptimizer;
    default:
      return kOtherCompute;
  }
}

// Streams overlap a little, so that most starts are in the order of launches: insertion is faster than a
// general sort, until it has moved too much.
void SortNearlySorted(std::vector<std::pair<uint64_t, size_t>>& values) {
  size_t budget = 8 * values.size();
  for (size_t i = 1; i < values.size(); ++i) {
    size_t place = i;
    const auto value = values[i];
    for (; place > 0 && value < values[place - 1] && budget > 0; --budget, --place) {
      values[place] = values[place - 1];
    }
    values[place] = value;
    if (budget == 0) return std::sort(values.begin(), values.end());
  }
}

// The median distance between launches of a step, 0 for fewer than two.
uint64_t LaunchPace(std::span<const StepOperation> own) {
  std::vector<uint64_t> distances;
  distances.reserve(own.size());
  for (size_t i = 1; i < own.size(); ++i) {
    if (own[i].launched && !own[i].same_launch && own[i].launch_ns > own[i - 1].launch_ns) {
      distances.push_back(own[i].launch_ns - own[i - 1].launch_ns);
    }
  }
  if (distances.empty()) return 0;
  const auto middle = distances.begin() + static_cast<ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  return *middle;
}

class Sweep {
 public:
  Sweep(const StepWindow& window, std::span<const StepPhase> phases, StepRecord& record)
      : window_(window), phases_(phases), record_(record), account_(window.host) {
    until_.fill(window.start_ns);
    record.start_ns = window.start_ns;
    record.end_ns = window.end_ns;
    record.operations = static_cast<uint32_t>(window.own);
    const auto own = window.operations.subspan(0, window.own);
    for (const StepOperation& operation : own) {
      if (record.first_launch_ns == 0 || operation.launch_ns < record.first_launch_ns) {
        record.first_launch_ns = operation.launch_ns;
      }
    }
    silence_ns_ = std::max(kLeastSilenceNs, kSilencePaces * LaunchPace(own));
    // Where steps are counted by collectives, one begins with the update of the step before.
    while (first_kernel_ < own.size() &&
           (own[first_kernel_].work != WorkClass::kCompute || (own[first_kernel_].roles & kRoleMemset) != 0 ||
            phases_[first_kernel_] == StepPhase::kOptimizer)) {
      ++first_kernel_;
    }
  }

  StepHost TakeHost() {
    host_.shares = account_.Take();
    return std::move(host_);
  }

  void Run() {
    std::vector<std::pair<uint64_t, size_t>> by_start;
    by_start.reserve(window_.operations.size());
    for (size_t i = 0; i < window_.operations.size(); ++i) {
      const StepOperation& operation = window_.operations[i];
      const uint64_t start_ns = std::max(operation.start_ns, window_.start_ns);
      if (start_ns < window_.end_ns && operation.end_ns > start_ns) by_start.emplace_back(start_ns, i);
    }
    SortNearlySorted(by_start);
    uint64_t at_ns = window_.start_ns;
    for (const auto& [start_ns, i] : by_start) {
      const uint64_t idle_from_ns = Advance(at_ns, start_ns);
      if (idle_from_ns < start_ns) Idle(idle_from_ns, start_ns, i);
      at_ns = start_ns;
      const StepOperation& operation = window_.operations[i];
      if (operation.work != WorkClass::kCopyToDevice) {
        only_copies_in_ = false;
      } else if (idle_from_ns < start_ns && operation.launched && operation.launch_ns > idle_from_ns) {
        only_copies_in_ = true;
      }
      uint64_t& until_ns = until_[LayerOf(operation, phases_[i])];
      until_ns = std::max(until_ns, std::min(operation.end_ns, window_.end_ns));
    }
    const uint64_t idle_from_ns = Advance(at_ns, window_.end_ns);
    // Only when the step's last operation is not among those that were given.
    if (idle_from_ns < window_.end_ns) {
      record_.idle_ns += window_.end_ns - idle_from_ns;
      record_.unknown_ns += window_.end_ns - idle_from_ns;
      IdleIn(StepPhase::kOther, window_.end_ns - idle_from_ns);
    }
  }

 private:
  uint64_t& Phase(StepPhase phase) { return record_.phase_ns[static_cast<size_t>(phase)]; }
  void IdleIn(StepPhase phase, uint64_t length_ns) {
    Phase(phase) += length_ns;
    record_.phase_idle_ns[static_cast<size_t>(phase)] += length_ns;
  }

  // Accounts for [from, to), in which nothing new starts, as far as something runs. Returns where that ends.
  uint64_t Advance(uint64_t from_ns, uint64_t to_ns) {
    while (from_ns < to_ns) {
      uint64_t next_ns = to_ns;
      int first = kLayers;
      bool compute = false;
      for (int layer = 0; layer < kLayers; ++layer) {
        const uint64_t until_ns = until_[static_cast<size_t>(layer)];
        if (until_ns <= from_ns) continue;
        next_ns = std::min(next_ns, until_ns);
        if (first == kLayers) first = layer;
        compute = compute || layer < kComputeLayers;
      }
      if (first == kLayers) return from_ns;
      const uint64_t length_ns = next_ns - from_ns;
      const bool comm = until_[kComm] > from_ns;
      if (compute) record_.compute_ns += length_ns;
      if (comm) record_.comm_ns += length_ns;
      if (comm && !compute) record_.exposed_comm_ns += length_ns;
      if (!comm && !compute) record_.copy_ns += length_ns;
      Phase(kPhaseOfLayer[static_cast<size_t>(first)]) += length_ns;
      from_ns = next_ns;
    }
    return to_ns;
  }

  // The host time of the launch before that of operations[i].
  uint64_t LaunchBefore(size_t i) const {
    const uint64_t launch_ns = window_.operations[i].launch_ns;
    while (i > 0) {
      --i;
      if (window_.operations[i].launched && window_.operations[i].launch_ns < launch_ns) {
        return window_.operations[i].launch_ns;
      }
    }
    return window_.previous_launch_ns;
  }

  // End of the call in which the host was blocked at `at_ns`, 0 if it was in none.
  uint64_t BlockedUntil(uint64_t at_ns) const {
    // Calls of several threads overlap: the last few that began before are looked at.
    constexpr int kLook = 8;
    const std::span<const HostInterval> blocked = window_.host.blocked;
    auto it = std::upper_bound(blocked.begin(), blocked.end(), at_ns,
                               [](uint64_t at, const HostInterval& b) { return at < b.start_ns; });
    uint64_t until_ns = 0;
    for (int look = 0; it != blocked.begin() && look < kLook; ++look) {
      --it;
      if (it->end_ns >= at_ns) until_ns = std::max(until_ns, it->end_ns);
    }
    return until_ns;
  }

  // Whether the intervals, which are by start, cover half of [from, to) or more.
  static bool CoverHalf(std::span<const HostInterval> intervals, uint64_t from_ns, uint64_t to_ns) {
    // Ranges are seconds apart, calls microseconds: those that began before are looked at as far as they can
    // matter.
    constexpr ptrdiff_t kLook = 8;
    auto it = std::upper_bound(intervals.begin(), intervals.end(), from_ns,
                               [](uint64_t at, const HostInterval& i) { return at < i.start_ns; });
    it -= std::min(kLook, it - intervals.begin());
    uint64_t covered_ns = 0;
    uint64_t at_ns = from_ns;
    for (; it != intervals.end() && it->start_ns < to_ns; ++it) {
      const uint64_t begin_ns = std::max(it->start_ns, at_ns);
      const uint64_t end_ns = std::min(it->end_ns, to_ns);
      if (begin_ns >= end_ns) continue;
      covered_ns += end_ns - begin_ns;
      at_ns = end_ns;
    }
    return 2 * covered_ns >= to_ns - from_ns;
  }

  // Nothing ran in [from, to), and operations[i] ended that.
  void Idle(uint64_t from_ns, uint64_t to_ns, size_t i) {
    const StepOperation& next = window_.operations[i];
    const uint64_t length_ns = to_ns - from_ns;
    record_.idle_ns += length_ns;
    if (!next.launched) {
      record_.unknown_ns += length_ns;
      IdleIn(StepPhase::kOther, length_ns);
      return;
    }
    const uint64_t launch_ns = std::clamp(next.launch_ns, from_ns, to_ns);
    record_.launch_gap_ns += to_ns - launch_ns;
    const uint64_t input_ns = launch_ns > from_ns ? LateLaunch(from_ns, launch_ns, i) : 0;
    IdleIn(StepPhase::kInput, input_ns);
    IdleIn(phases_[i], length_ns - input_ns);
  }

  // Nothing ran in [from, to), at whose end operations[i] was launched. Books it; returns the part that was
  // input.
  uint64_t LateLaunch(uint64_t from_ns, uint64_t to_ns, size_t i) {
    const StepOperation& next = window_.operations[i];
    const uint64_t length_ns = to_ns - from_ns;
    if (CoverHalf(window_.host.memory, from_ns, to_ns)) {
      record_.memory_ns += length_ns;
      account_.Add(IdleCause::kMemory, from_ns, to_ns, LaunchBefore(i));
      return 0;
    }
    const uint64_t blocked_until_ns = only_copies_in_ ? 0 : BlockedUntil(from_ns);
    const uint64_t launched_ns = LaunchBefore(i);
    const uint64_t silent_from_ns = std::max(launched_ns, blocked_until_ns);
    const bool silent = silent_from_ns < to_ns && to_ns - silent_from_ns >= silence_ns_;
    const HostAccount::Evidence evidence =
        silent ? account_.EvidenceOf(silent_from_ns, to_ns) : HostAccount::Evidence{};
    const bool sampled = evidence.IsEnough(to_ns - std::min(silent_from_ns, to_ns));
    const bool loading =
        silent && (CoverHalf(window_.host.input, from_ns, to_ns) || (sampled && evidence.Loads()));
    const bool after_copies = silent && next.after_copies_out_us >= kLeastCopiesOutUs;
    const bool before_first_copy =
        silent && next.work == WorkClass::kCopyToDevice && (i == 0 || i < first_kernel_);
    if (before_first_copy && evidence.looks > 0) {
      // One long silence, such as the one before the first step, says no more than another one.
      constexpr uint64_t kMostOfASilence = 4;
      const uint64_t looks = std::min(evidence.looks, kMostOfASilence);
      host_.looks += looks;
      host_.loading_looks += evidence.loading_looks * looks / evidence.looks;
    }
    const bool first_copy = before_first_copy && !sampled && !window_.host.loads_nothing;
    uint64_t rest_ns = length_ns;
    uint64_t input_ns = 0;
    if (loading || (first_copy && !after_copies)) {
      input_ns = to_ns - std::clamp(blocked_until_ns, from_ns, to_ns);
      record_.input_ns += input_ns;
      rest_ns -= input_ns;
    } else if (after_copies) {
      record_.pause_ns += length_ns;  // a call that waits for these copies is part of it
      record_.pause_after_copy_ns += length_ns;
      account_.Add(IdleCause::kPause, from_ns, to_ns, launched_ns);
      return 0;
    }
    // What the host does after the call is known only by samples.
    const uint64_t call_ns = std::clamp(blocked_until_ns, from_ns, from_ns + rest_ns) - from_ns;
    const uint64_t synced_ns = blocked_until_ns == 0 ? 0 : sampled ? call_ns : rest_ns;
    record_.sync_ns += synced_ns;
    account_.Add(IdleCause::kSync, from_ns, from_ns + synced_ns, launched_ns);
    (silent ? record_.pause_ns : record_.host_bound_ns) += rest_ns - synced_ns;
    account_.Add(silent ? IdleCause::kPause : IdleCause::kHostBound, from_ns + synced_ns, from_ns + rest_ns,
                 launched_ns);
    account_.Add(IdleCause::kInput, from_ns + rest_ns, to_ns, launched_ns);
    return input_ns;
  }

  const StepWindow& window_;
  std::span<const StepPhase> phases_;
  StepRecord& record_;
  HostAccount account_;
  StepHost host_;
  std::array<uint64_t, kLayers> until_{};  // of each layer, when what has started ends
  bool only_copies_in_ = false;            // ran since the device was dry and the host late
  uint64_t silence_ns_ = 0;
  size_t first_kernel_ = 0;
};

}  // namespace

StepRecord MeasureStep(const StepWindow& window, std::span<const StepPhase> phases, StepHost* host) {
  StepRecord record;
  Sweep sweep(window, phases, record);
  sweep.Run();
  if (host != nullptr) *host = sweep.TakeHost();
  HostAccount blocked_account(window.host);
  uint64_t from_ns = window.start_ns;
  for (const HostInterval& blocked : window.host.blocked) {
    const uint64_t begin_ns = std::max(blocked.start_ns, from_ns);
    const uint64_t end_ns = std::min(blocked.end_ns, window.end_ns);
    record.blocked_calls +=
        blocked.end_ns > window.start_ns && blocked.end_ns <= window.end_ns ? blocked.calls : 0;
    if (begin_ns >= end_ns) continue;
    record.blocked_ns += end_ns - begin_ns;
    blocked_account.Add(IdleCause::kBlocked, begin_ns, end_ns, blocked.start_ns);
    from_ns = end_ns;
  }
  HostAccount between_account(window.host);
  if (window.between_ns != 0)
    between_account.Add(IdleCause::kBetween, window.between_ns, window.start_ns, window.between_ns);
  if (host != nullptr) {
    for (HostAccount* account : {&blocked_account, &between_account}) {
      for (const HostShare& share : account->Take()) host->shares.push_back(share);
    }
  }
  for (const HostInterval& call : window.host.memory)
    record.memory_calls += call.end_ns > window.start_ns && call.end_ns <= window.end_ns ? call.calls : 0;
  return record;
}

}  // namespace gpuprobe::model
