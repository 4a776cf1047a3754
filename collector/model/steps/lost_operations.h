// Reconstructs operations whose records were lost, using a typical step as the template: what they were, and
// about when they ran.
//
// Separate from the tracker, which only cuts steps: this knows one complete step, and moves it to where
// others were. The launches of a step are known although the device's records are lost, so a step keeps its
// place and its length in operations. Its times are taken from the usual step's timeline, stretched so that
// everything seen before, in and after the gap stays in place. Reconstructed times are never exact: the error
// is the difference of the gap from its usual length, plus the usual variation; before the first operation
// seen, it is that operation's delay after the launches. Where no step is complete, one is put together from
// parts of several. Memory: two steps. Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {

// A step among operations, and what could be restored of it.
struct RestoredStep {
  size_t begin = 0;
  size_t end = 0;
  bool fits = false;          // it is like the usual step, as far as it was seen
  uint32_t left = 0;          // operations that could not be restored (yet)
  uint64_t end_error_ns = 0;  // by how much its end may be off, if anything was lost; UINT64_MAX: not known
};

// Where, among operations of which many were not seen, steps end that have `usual` operations, or a few more:
// before what steps begin with (`head`), else where the host paused longest. The last one ends with
// `operations`. `first`: what comes before the first step may be there, too. Empty if they do not divide so.
std::vector<size_t> EndsOfLostSteps(std::span<const StepOperation> operations, size_t usual, uint32_t head,
                                    bool first);

class UsualStep {
 public:
  bool known() const { return !operations_.empty(); }
  // Operations of the step that was learned.
  size_t size() const { return operations_.size(); }
  // A step of which everything was seen, on the device's timeline.
  void Learn(std::span<const StepOperation> own, uint64_t start_ns, uint64_t end_ns);
  // The same of a step of which only start, end and a part of the operations were seen: fills what earlier
  // ones lacked.
  void LearnPart(std::span<const StepOperation> own, uint64_t start_ns, uint64_t end_ns);

  // Gives the operations of `steps` (ascending) that were not seen their kinds and times. `known_until_ns`:
  // end of what was launched before the first step; 0: not known. `variation`: standard deviation of a step's
  // length over its mean. Only what lies between operations that were seen; `all`: what comes after the last
  // one, too, because no more will come.
  void Restore(std::span<StepOperation> operations, std::span<RestoredStep> steps, uint64_t known_until_ns,
               double variation, bool all) const;

 private:
  struct Point;
  class Timeline;
  static constexpr size_t kNone = SIZE_MAX;
  // For each operation of a step its place in the usual one, kNone where that is not clear; empty: it is
  // another kind of step.
  std::vector<size_t> Align(std::span<const StepOperation> own) const;
  // How much of the usual step comes after everything that has a place.
  uint64_t MissingAtEnd(const std::vector<size_t>& places) const;
  // Steps one after the other, all of which fit.
  void RestoreRun(std::span<StepOperation> operations, std::span<RestoredStep> run,
                  const std::vector<std::vector<size_t>>& places, uint64_t known_until_ns, double variation,
                  bool all) const;

  std::vector<StepOperation> operations_;  // times from the step's start on
  uint64_t length_ns_ = 0;
  std::vector<StepOperation> parts_;  // the same for the step being put together
  uint64_t parts_length_ns_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, operations_, length_ns_, parts_, parts_length_ns_);
  }
};

}  // namespace gpuprobe::model
