#include "collector/model/steps/phase_inference.h"

#include <algorithm>
#include <utility>

namespace gpuprobe::model {
namespace {

constexpr size_t kNowhere = SIZE_MAX;

bool HasRole(const StepOperation& operation, uint16_t roles) { return (operation.roles & roles) != 0; }
bool IsCompute(const StepOperation& operation) { return operation.work == WorkClass::kCompute; }

uint64_t ComputeNs(std::span<const StepOperation> operations) {
  uint64_t sum_ns = 0;
  for (const StepOperation& o : operations) sum_ns += IsCompute(o) ? o.end_ns - o.start_ns : 0;
  return sum_ns;
}

// Whether it matters which of two phases the operations from `begin` to `end` belong to.
bool Matters(std::span<const StepOperation> own, size_t begin, size_t end) {
  constexpr uint64_t kOneIn = 100;
  return ComputeNs(own.subspan(begin, end - begin)) * kOneIn > ComputeNs(own);
}

// Where the optimizer begins, `after` the last operation that surely is of backward: with its first kernel or
// with the gradients' norm, and with the zeros that these begin with. kNowhere: neither is known by name.
size_t OptimizerAfter(std::span<const StepOperation> own, size_t after) {
  for (size_t i = after + 1; i < own.size(); ++i) {
    if (!HasRole(own[i], kRoleOptimizer | kRoleNorm)) continue;
    while (i > after + 1 && HasRole(own[i - 1], kRoleMemset)) --i;
    return i;
  }
  return kNowhere;
}

// Where backward ends and the optimizer begins, after the last operation that surely is of backward.
struct Turn {
  size_t reduced = kNowhere;    // where gradients are reduced last, if that comes after it
  size_t optimizer = kNowhere;  // kNowhere: not known by name
  bool known = true;            // else what lies in between may be of either
};

// What reduces gradients is the end of backward, as in DeepSpeed's. Then the optimizer may put its part of
// them together, and its norm may begin with a cast. Whatever else computes there may be about gradients or
// parameters.
Turn TurnAfter(std::span<const StepOperation> own, size_t after) {
  Turn turn{.optimizer = OptimizerAfter(own, after)};
  if (turn.optimizer == kNowhere) return turn;
  for (size_t i = after + 1; i < turn.optimizer; ++i) {
    if (HasRole(own[i], kRoleReduction)) turn.reduced = i;
  }
  if (turn.reduced == kNowhere) return turn;
  while (HasRole(own[turn.optimizer - 1], kRoleCast)) --turn.optimizer;
  for (size_t i = turn.optimizer; --i > turn.reduced;) {
    if (HasRole(own[i], kRoleFlatten)) turn.optimizer = i;
  }
  turn.known = !Matters(own, turn.reduced + 1, turn.optimizer);
  return turn;
}

// Phases by threads: `last_autograd` is the place of the last operation that an autograd thread launched.
// `next`: the operation after it, null after the last one.
StepPhase ByThread(const StepOperation& operation, const StepOperation* next, size_t i,
                   size_t last_autograd) {
  const bool autograd = HasRole(operation, kRoleAutogradThread);
  if (HasRole(operation, kRoleOptimizer | kRoleNorm) && !(autograd && HasRole(operation, kRoleForeach)))
    return StepPhase::kOptimizer;
  if (autograd) return StepPhase::kBackward;
  // backward() itself fills the gradient that it begins with, a one, and then wakes the thread.
  const bool wakes_autograd = next != nullptr && HasRole(*next, kRoleAutogradThread);
  if (wakes_autograd && HasRole(operation, kRoleMemset)) return StepPhase::kBackward;
  return i < last_autograd ? StepPhase::kForward : StepPhase::kOptimizer;
}

// Each of several micro-batches may reduce its gradients after its backward pass, as in DeepSpeed, and copy
// them back. These calls are also made after the last one, where nothing goes forward.
void ReduceAfterEach(std::span<const StepOperation> own, size_t last_autograd, size_t last_reduced,
                     std::span<StepPhase> phases) {
  const auto reduces = [&](const StepOperation& operation) {
    const auto last = own.subspan(last_autograd + 1, last_reduced - last_autograd);
    return HasRole(operation, kRoleReduction) && std::any_of(last.begin(), last.end(), [&](const auto& o) {
             return o.token == operation.token && HasRole(o, kRoleReduction);
           });
  };
  size_t begin = kNowhere;  // after autograd's last one so far
  for (size_t i = 0; i < last_autograd; ++i) {
    if (HasRole(own[i], kRoleAutogradThread)) begin = i + 1;
    if (begin == kNowhere || !reduces(own[i])) continue;
    while (own[i + 1].work == WorkClass::kCopyOther) ++i;
    for (; begin <= i; ++begin) phases[begin] = StepPhase::kBackward;
  }
}

void ByThreads(std::span<const StepOperation> own, size_t last_autograd, std::span<StepPhase> phases) {
  for (size_t i = 0; i < own.size(); ++i)
    phases[i] = ByThread(own[i], i + 1 < own.size() ? &own[i + 1] : nullptr, i, last_autograd);
  const Turn turn = TurnAfter(own, last_autograd);
  if (turn.reduced == kNowhere) return;
  for (size_t i = last_autograd + 1; i < turn.optimizer; ++i) phases[i] = StepPhase::kBackward;
  ReduceAfterEach(own, last_autograd, turn.reduced, phases);
  if (turn.known) return;
  for (StepPhase& phase : phases.first(own.size())) {
    if (phase != StepPhase::kForward) phase = StepPhase::kOther;
  }
}

// Phases of a step of PyTorch's that runs backward on the calling thread.
//
// Only some kernels of backward have names that say so, and it begins with others. What it begins with is the
// gradient of the loss, a one, which backward() fills itself. Example: ... mean, fill, mul, pow, mul, gemm,
// gelu_backward: backward begins with the fill, the last one of a few elements before the first kernel that
// is surely backward's.
class OnOneThread {
 public:
  OnOneThread(std::span<const StepOperation> own, std::span<StepPhase> phases) : own_(own), phases_(phases) {
    for (size_t i = 0; i < own.size(); ++i) {
      if (HasRole(own[i], kRoleBackwardName)) last_backward_ = i;
    }
  }

  void Run() {
    Fill(0, own_.size(), StepPhase::kOther);
    if (last_backward_ == kNowhere) return;
    const Turn turn = TurnAfter(own_, last_backward_);
    const size_t optimizer = std::min(turn.optimizer, own_.size());
    if (!Turns(optimizer)) Fill(0, optimizer, StepPhase::kOther);
    if (turn.known) return Fill(optimizer, own_.size(), StepPhase::kOptimizer);
    std::replace(phases_.begin(), phases_.begin() + static_cast<ptrdiff_t>(optimizer), StepPhase::kBackward,
                 StepPhase::kOther);
  }

 private:
  void Fill(size_t begin, size_t end, StepPhase phase) {
    for (size_t i = begin; i < end; ++i) phases_[i] = phase;
  }
  // Where backward begins, given that its first named kernel after `begin` is at `named`. kNowhere: not
  // known.
  size_t BackwardFrom(size_t begin, size_t named) const {
    size_t forward = begin;  // the end of what surely is forward
    bool loss = false;
    for (size_t i = begin; i < named; ++i) {
      if (!HasRole(own_[i], kRoleLossName | kRoleForwardName)) continue;
      forward = i + 1;
      loss = HasRole(own_[i], kRoleLossName);
    }
    for (size_t i = named; i-- > forward;) {
      if (!HasRole(own_[i], kRoleSeed)) continue;
      while (i > forward && HasRole(own_[i - 1], kRoleSeed)) --i;  // it may fill another one next
      return i;
    }
    // The gradient of the loss was given.
    if (loss) return forward;
    return forward > begin && !Matters(own_, forward, named) ? named : kNowhere;
  }
  size_t NextNamed(size_t begin, size_t end) const {
    while (begin < end && !HasRole(own_[begin], kRoleBackwardName)) ++begin;
    return begin;
  }
  // Forward and backward in turns, as in gradient accumulation, up to `end`. False: they cannot be told
  // apart.
  bool Turns(size_t end) {
    const size_t backward = BackwardFrom(0, NextNamed(0, end));
    if (backward == kNowhere) return false;
    Fill(0, backward, StepPhase::kForward);
    for (size_t i = backward; i < end; ++i) {
      if (HasRole(own_[i], kRoleOptimizer)) return false;  // each of several models has one
    }
    size_t begin = backward;
    while (begin < end) {
      const auto [forward, next] = SameForward(backward, begin, end);
      Fill(begin, forward, StepPhase::kBackward);
      if (forward == end) return !LooksForward(begin, end);
      Fill(forward, next, StepPhase::kForward);
      begin = next;
    }
    return true;
  }
  // The next time that what computed forward up to `backward` comes again, from `begin` on: where it begins,
  // and where backward follows. {end, end}: it does not.
  std::pair<size_t, size_t> SameForward(size_t backward, size_t begin, size_t end) const {
    constexpr size_t kLeast = 3;         // kernels
    constexpr double kLeastShare = 0.9;  // of forward's: the first one may prepare something
    const auto all = std::count_if(own_.begin(), own_.begin() + static_cast<ptrdiff_t>(backward), IsCompute);
    for (size_t next = begin + 1; next < end; ++next) {
      if (own_[next].coarse != own_[backward].coarse || !IsCompute(own_[next])) continue;
      const auto [from, same] = SameBefore(backward, next, begin);
      if (same < kLeast || static_cast<double>(same) < kLeastShare * static_cast<double>(all)) continue;
      size_t forward = from;  // with its input
      while (forward > begin && own_[forward - 1].work == WorkClass::kCopyToDevice) --forward;
      return {forward, next};
    }
    return {end, end};
  }
  // How many kernels before `there`, down to `begin`, are those before `here`, and where the first of them
  // is.
  std::pair<size_t, size_t> SameBefore(size_t here, size_t there, size_t begin) const {
    size_t same = 0;
    size_t from = there;
    for (size_t i = here, j = there;; ++same, from = j) {
      while (i > 0 && !IsCompute(own_[i - 1])) --i;
      while (j > begin && !IsCompute(own_[j - 1])) --j;
      if (i == 0 || j == begin || own_[i - 1].coarse != own_[j - 1].coarse) break;
      --i;
      --j;
    }
    return {from, same};
  }
  // Whether something from `begin` to `end` is of another forward, after backward has begun there.
  bool LooksForward(size_t begin, size_t end) const {
    for (size_t i = NextNamed(begin, end); i < last_backward_ && i < end; ++i) {
      if (HasRole(own_[i], kRoleLossName) && !HasRole(own_[i], kRoleBackwardName)) return true;
    }
    return false;
  }

  std::span<const StepOperation> own_;
  std::span<StepPhase> phases_;
  size_t last_backward_ = kNowhere;  // that has a name of backward
};

void ByNames(std::span<const StepOperation> own, std::vector<StepPhase>& phases) {
  const bool tells = std::any_of(own.begin(), own.end(), [](const StepOperation& o) {
    return HasRole(o, kRoleBackwardName | kRoleLossName);
  });
  const bool pytorch =
      std::any_of(own.begin(), own.end(), [](const StepOperation& o) { return HasRole(o, kRolePyTorch); });
  if (tells && pytorch) return OnOneThread(own, phases).Run();
  StepPhase mode = tells ? StepPhase::kForward : StepPhase::kOther;
  for (size_t i = 0; i < own.size(); ++i) {
    if (tells && own[i].work == WorkClass::kCopyToDevice) mode = StepPhase::kForward;
    if (HasRole(own[i], kRoleOptimizer)) mode = StepPhase::kOptimizer;
    if (HasRole(own[i], kRoleBackwardName)) mode = StepPhase::kBackward;
    phases[i] = mode;
    if (HasRole(own[i], kRoleLossName)) mode = StepPhase::kBackward;
  }
}

}  // namespace

void PhaseRanges::Add(uint64_t id, uint64_t parent, uint64_t end_ns, uint8_t phase) {
  ++heard_;
  named_ = named_ || phase != kNone;
  if (!named_ && heard_ > kHopeless) {
    ranges_.clear();
    return;
  }
  if (ranges_.size() < kMaxRanges) ranges_[id] = {.parent = parent, .end_ns = end_ns, .phase = phase};
}

uint8_t PhaseRanges::PhaseOf(uint64_t range) const {
  constexpr int kMostParents = 64;
  for (int depth = 0; range != 0 && depth < kMostParents; ++depth) {
    const auto found = ranges_.find(range);
    if (found == ranges_.end()) return kNone;
    if (found->second.phase != kNone) return found->second.phase;
    range = found->second.parent;
  }
  return kNone;
}

void PhaseRanges::ForgetBefore(uint64_t time_ns) {
  absl::erase_if(ranges_, [time_ns](const auto& entry) { return entry.second.end_ns < time_ns; });
}

std::vector<StepPhase> PhasesOf(std::span<const StepOperation> operations, size_t own,
                                const PhaseRanges& ranges, bool& annotated) {
  // Work that runs here but was launched after the step is the next one's beginning.
  std::vector<StepPhase> phases(operations.size(), StepPhase::kForward);
  annotated = false;
  if (!ranges.empty()) {
    for (size_t i = 0; i < operations.size(); ++i) {
      const uint8_t phase = ranges.PhaseOf(operations[i].range);
      phases[i] = phase == PhaseRanges::kNone ? StepPhase::kOther : static_cast<StepPhase>(phase);
      annotated = annotated || (i < own && phase != PhaseRanges::kNone);
    }
    if (annotated) return phases;
    phases.assign(operations.size(), StepPhase::kForward);
  }
  size_t last_autograd = own;
  for (size_t i = 0; i < own; ++i) {
    if ((operations[i].roles & kRoleAutogradThread) != 0) last_autograd = i;
  }
  if (last_autograd < own) {
    ByThreads(operations.subspan(0, own), last_autograd, phases);
  } else {
    ByNames(operations.subspan(0, own), phases);
  }
  return phases;
}

}  // namespace gpuprobe::model
