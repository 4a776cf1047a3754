// Ways to cut a history of operations into segments, and how well they fit: what the finder of steps
// compares.
//
// Example: the optimizer's kernels cut 10,000 operations into 50 segments, of which 48 are equal and hold 96
// % of the operations. The other two have an evaluation before them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {

// Equal segments must hold this share of the history's operations between the first and the last anchor.
inline constexpr double kLeastCoverage = 0.6;

enum class Level : uint8_t { kFine, kCoarse, kLength };

// One way to cut a history.
struct Cut {
  std::vector<size_t> ends;  // after each cluster of anchors
  uint32_t gap = 0;
  size_t operations = 0;  // of the usual segment
  uint64_t sum = 0;
  Level level = Level::kLength;
  double coverage = 0;
  size_t usual = 0;      // segments that end with the usual one
  size_t after = 0;      // of these, those whose segment comes after another one's
  size_t follow = 0;     // and that fill it
  double novelty = 0;    // share of operations between equal segments that occur in none
  size_t usual_end = 0;  // end of a usual segment: of the first, where they are equal
};

// A stretch of operations in launch order, with sums over any part of it.
class History {
 public:
  explicit History(std::span<const StepOperation> operations)
      : operations_(operations), fine_(operations.size() + 1), coarse_(operations.size() + 1) {
    for (size_t i = 0; i < operations.size(); ++i) {
      fine_[i + 1] = fine_[i] + TokenWeight(operations[i].token);
      coarse_[i + 1] = coarse_[i] + TokenWeight(operations[i].coarse);
      lossy_ = lossy_ || operations[i].work == WorkClass::kUnseen;
    }
  }
  std::span<const StepOperation> operations() const { return operations_; }
  // Some launches have no record.
  bool lossy() const { return lossy_; }
  uint64_t Sum(Level level, size_t begin, size_t end) const {
    const std::vector<uint64_t>& sums = level == Level::kFine ? fine_ : coarse_;
    return sums[end] - sums[begin];
  }

 private:
  std::span<const StepOperation> operations_;
  std::vector<uint64_t> fine_;  // sums over all operations before
  std::vector<uint64_t> coarse_;
  bool lossy_ = false;
};

// How well segments that end there fit: equal, else equal without sizes and geometry, else about equally
// long. `named`: a name shows that the anchors belong to steps, so equal counts are enough.
Cut Measure(const History& history, const std::vector<size_t>& ends, bool named);
// Whether segments of this kind can be steps, and not parts of steps.
bool MayBeSteps(const History& history, const Cut& cut, bool named);

}  // namespace gpuprobe::model
