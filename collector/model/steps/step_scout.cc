#include "collector/model/steps/step_scout.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

constexpr size_t kFirstLook = 128;  // operations after the first optimizer's kernel

bool IsOptimizer(const StepOperation& operation) { return (operation.roles & kRoleOptimizer) != 0; }

// Whether steps by `found` are others than by `now`, and nearer to what a step is: it has a name, or holds
// several of what was taken for steps.
bool IsBetter(const StepDefinition& found, const StepDefinition& now) {
  constexpr double kSame = 0.02;
  constexpr double kLonger = 1.2;
  const auto ours = static_cast<double>(found.operations);
  const auto known = static_cast<double>(now.operations);
  if (found.roles != 0) return ours < known * (1 - kSame) || ours > known * (1 + kSame);
  return ours > known * kLonger;
}

}  // namespace

void StepScout::Begin(const StepDefinition& found, std::span<const StepOperation> history) {
  looks_ = found.roles == 0;
  if (!looks_) return;
  history_.assign(history.begin(), history.end());
  named_ = std::any_of(history.begin(), history.end(), IsOptimizer);
  whole_ = true;
  searched_from_ = 0;
  next_look_ = 2 * history.size();
}

void StepScout::Keep(size_t last) {
  if (history_.size() <= last) return;
  history_.erase(history_.begin(), history_.end() - static_cast<ptrdiff_t>(last));
  whole_ = false;
}

void StepScout::End() { *this = StepScout(); }

std::optional<StepDefinition> StepScout::Add(const StepOperation& operation, const StepDefinition& now) {
  history_.push_back(operation);
  if (!named_ && IsOptimizer(operation)) {
    named_ = true;
    Keep(kBefore);
    searched_from_ = history_.size();
    next_look_ = searched_from_ + kFirstLook;
  }
  if (history_.size() >= next_look_ && (named_ || whole_)) return Look(now);
  if (!named_ && history_.size() >= (whole_ ? kMostWhole : 2 * kBefore)) Keep(kBefore);
  return std::nullopt;
}

std::optional<StepDefinition> StepScout::Look(const StepDefinition& now) {
  next_look_ = searched_from_ + 2 * (history_.size() - searched_from_);
  const std::optional<StepDefinition> found =
      named_ ? FindNamedSteps(history_, false) : FindStepDefinition(history_, false, false);
  if (found.has_value() && found->roles != 0) {
    End();
    return IsBetter(*found, now) ? found : std::nullopt;
  }
  if (named_ && next_look_ > kMostNamed) End();
  return found.has_value() && IsBetter(*found, now) ? found : std::nullopt;
}

std::optional<StepDefinition> StepScout::Finish(const StepDefinition& now) const {
  if (!looks_) return std::nullopt;
  std::optional<StepDefinition> found;
  if (named_) {
    found = FindNamedSteps(history_, true);
  } else if (whole_) {
    found = FindStepDefinition(history_, false, false);
  }
  return found.has_value() && IsBetter(*found, now) ? found : std::nullopt;
}

}  // namespace gpuprobe::model
