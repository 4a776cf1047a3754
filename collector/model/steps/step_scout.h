// Looks on once steps were found without a name that says so: whether later operations show better ones.
//
// Separate from AnchorCutter, which applies an answer: what repeats first may be an evaluation before the
// first step, or layers that are set up one after another, and only what comes later shows that it was. So
// the history is searched again each time it has doubled, and once more when kernels of an optimizer appear.
// Memory: the operations from the start while there are at most kMostWhole, then the last few; from the first
// optimizer's kernel on at most kMostNamed. Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_finder.h"
#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {

class StepScout {
 public:
  static constexpr size_t kMostWhole = 32768;
  static constexpr size_t kMostNamed = 131072;
  // Kept from before the first optimizer's kernel: so much belongs to its step at most.
  static constexpr size_t kBefore = 8192;

  // `history`: the operations in which `found` was found.
  void Begin(const StepDefinition& found, std::span<const StepOperation> history);
  bool looks() const { return looks_; }
  // The next operation. A better definition than `now`, if it shows one.
  std::optional<StepDefinition> Add(const StepOperation& operation, const StepDefinition& now);
  // The same when no more will come.
  std::optional<StepDefinition> Finish(const StepDefinition& now) const;

 private:
  std::optional<StepDefinition> Look(const StepDefinition& now);
  void Keep(size_t last);
  void End();

  std::vector<StepOperation> history_;
  size_t next_look_ = 0;      // at so many operations
  size_t searched_from_ = 0;  // where the optimizer's first kernel is, or the start
  bool looks_ = false;
  bool named_ = false;  // an optimizer's kernel was seen
  bool whole_ = false;  // nothing is missing from the history

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, history_, next_look_, searched_from_, looks_, named_, whole_);
    archive.Require(history_.size() <= kMostNamed);
  }
};

}  // namespace gpuprobe::model
