#include "collector/model/steps/phase_inference.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

// Phases by threads: `last_autograd` is the place of the last operation that an autograd thread launched.
// `next`: the operation after it, null after the last one.
StepPhase ByThread(const StepOperation& operation, const StepOperation* next, size_t i,
                   size_t last_autograd) {
  if ((operation.roles & kRoleOptimizer) != 0) return StepPhase::kOptimizer;
  if ((operation.roles & kRoleAutogradThread) != 0) return StepPhase::kBackward;
  // backward() itself fills the gradient that it begins with, a one, and then wakes the thread.
  const bool wakes_autograd = next != nullptr && (next->roles & kRoleAutogradThread) != 0;
  if (wakes_autograd && (operation.roles & kRoleMemset) != 0) return StepPhase::kBackward;
  return i < last_autograd ? StepPhase::kForward : StepPhase::kOptimizer;
}

void ByNames(std::span<const StepOperation> own, std::vector<StepPhase>& phases) {
  const bool tells = std::any_of(own.begin(), own.end(), [](const StepOperation& o) {
    return (o.roles & (kRoleBackwardName | kRoleLossName)) != 0;
  });
  StepPhase mode = tells ? StepPhase::kForward : StepPhase::kOther;
  for (size_t i = 0; i < own.size(); ++i) {
    const uint8_t roles = own[i].roles;
    if (tells && own[i].work == WorkClass::kCopyToDevice) mode = StepPhase::kForward;
    if ((roles & kRoleOptimizer) != 0) mode = StepPhase::kOptimizer;
    if ((roles & kRoleBackwardName) != 0) mode = StepPhase::kBackward;
    phases[i] = mode;
    if ((roles & kRoleLossName) != 0) mode = StepPhase::kBackward;
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
    for (size_t i = 0; i < own; ++i)
      phases[i] = ByThread(operations[i], i + 1 < own ? &operations[i + 1] : nullptr, i, last_autograd);
  } else {
    ByNames(operations.subspan(0, own), phases);
  }
  return phases;
}

}  // namespace gpuprobe::model
