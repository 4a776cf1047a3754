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
  uint16_t roles = 0;
  uint32_t token = 0;
  uint32_t coarse = 0;
  bool collectives = false;  // or is any collective
  bool before = false;       // a step begins with the cluster instead of ending after it
  // A cluster of anchors is over after more than this many other operations that part it.
  uint32_t gap = 0;
  // Operations after the cluster that still belong to the step, and the coarse token of the one that begins
  // the next one.
  uint32_t tail = 0;
  uint32_t head = 0;
  uint32_t heads = 0;  // such operations in the usual step
  // The usual step: its number of operations, and the sum over them that only a step of the same ones has.
  uint32_t operations = 0;
  uint64_t coarse_sum = 0;

  bool IsAnchor(const StepOperation& operation) const {
    return (operation.roles & roles) != 0 || (token != 0 && operation.token == token) ||
           (coarse != 0 && operation.coarse == coarse) ||
           (collectives && operation.work == WorkClass::kCommunication);
  }
  // Whether it takes an anchor away from the one before. An optimizer fills its state with zeros in its first
  // turn, in the middle of it.
  bool Parts(const StepOperation& operation) const {
    return (roles & kRoleOptimizer) == 0 || (operation.roles & kRoleMemset) == 0;
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, source, roles, token, coarse, collectives, before, gap, tail, head, heads,
                    operations, coarse_sum);
  }
};

// nullopt if the history does not show it (yet). `at_end`: no more will come, so less evidence must do.
// `marked`: the user's marker is on some operations; nothing else counts.
std::optional<StepDefinition> FindStepDefinition(std::span<const StepOperation> history, bool at_end,
                                                 bool marked);
// The same, if an optimizer's kernels show it.
std::optional<StepDefinition> FindNamedSteps(std::span<const StepOperation> history, bool at_end);

}  // namespace gpuprobe::model
