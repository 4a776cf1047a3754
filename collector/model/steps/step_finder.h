// Learns from a stretch of a program's operations, in launch order, how to recognise where its steps end.
//
// Separate from the tracker, which applies the answer as operations come: this looks at history only. Pure.
//
// A step ends with its anchor: operations that occur in every step once, alone or as a cluster, such as the
// optimizer's kernels, or the gradients' last all-reduce. Candidates are, in this order: operations that the
// user marked; kernels of optimizers (by name); collectives; every kernel. A candidate's occurrences cut the
// history into segments. It is an anchor when most of the history is in segments that are equal (the same
// multiset of operations; else the same without sizes and geometry; else about equally many), whatever is
// between them (an evaluation) consists of the same operations as steps and does not come with every one, and
// no smaller period fits. What comes between the anchor and the next step's first operation is learned with
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

struct StepDefinition {
  StepSource source = StepSource::kNone;
  // An operation is an anchor if it has one of these roles, or this token (fine or coarse).
  uint8_t roles = 0;
  uint32_t token = 0;
  uint32_t coarse = 0;
  bool collectives = false;  // or is any collective
  bool before = false;       // a step begins with the cluster instead of ending after it
  // A cluster of anchors is over after more than this many other operations.
  uint32_t gap = 0;
  // Operations after the cluster that still belong to the step, and the coarse token of the one that begins
  // the next one.
  uint32_t tail = 0;
  uint32_t head = 0;
  // The usual step: its number of operations, and sums over them that only a step of the same ones has.
  uint32_t operations = 0;
  uint64_t fine_sum = 0;
  uint64_t coarse_sum = 0;

  bool IsAnchor(const StepOperation& operation) const {
    return (operation.roles & roles) != 0 || (token != 0 && operation.token == token) ||
           (coarse != 0 && operation.coarse == coarse) ||
           (collectives && operation.work == WorkClass::kCommunication);
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, source, roles, token, coarse, collectives, before, gap, tail, head, operations,
                    fine_sum, coarse_sum);
  }
};

// An operation's contribution to the sums of a step: whatever their order, two steps of the same operations
// have the same sums.
inline uint64_t TokenWeight(uint32_t token) {
  uint64_t x = token + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// nullopt if the history does not show it (yet). `at_end`: no more will come, so less evidence must do.
// `marked`: the user's marker is on some operations; nothing else counts.
std::optional<StepDefinition> FindStepDefinition(std::span<const StepOperation> history, bool at_end,
                                                 bool marked);

}  // namespace gpuprobe::model
