// When in a step each of its collectives runs: how long after backward began, for how long, and how much of
// that is hidden behind compute.
//
// Separate from the timeline, which shows how much of a step is communication: this shows which calls, in
// which order. A call is identified by its operation and communicator and by its place among these in the
// step, so that the n-th bucket of gradients is one entry.
//
// It also notes the calls that each micro-batch of a step makes alike. Example: a step goes forward and
// backward four times before the optimizer, and each backward reduces the same four buckets. Micro-batches go
// forward for equally long; where layers are recomputed in backward, only the first part goes all the way.
//
// A pass is what a micro-batch's forward or backward launches without interruption. Calls amid it belong to
// the layers; those before or after it, such as a loss or the weights that an optimizer has updated, do not.
//
// Memory: kMaxCalls entries, and those of EarlySteps while it is not known which steps are warm-up. Not
// thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/early_steps.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

class CommunicationTiming {
 public:
  static constexpr size_t kMaxCalls = 512;
  static constexpr size_t kMaxNames = 4096;

  // The calls that a collective kernel's token stands for.
  struct Name {
    uint32_t op = 0;     // StringDef of the first call's operation
    uint32_t comm = 0;   // Communicator
    uint32_t calls = 0;  // of the plan; 0: not known
    uint64_t bytes = 0;  // count x element size, of all

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, op, comm, calls, bytes);
    }
  };
  // Sums over `steps` steps in which there was such a call.
  struct Call {
    uint32_t token = 0;  // of the latest step
    uint64_t steps = 0;
    uint64_t time_ns = 0;
    uint64_t hidden_ns = 0;  // of it, behind compute
    // From the start of backward's first kernel to the call's, negative before it; of the steps that have
    // one.
    uint64_t backward_steps = 0;
    int64_t after_backward_ns = 0;
    // The calls that were launched in forward.
    uint64_t forward_steps = 0;
    uint64_t forward_ns = 0;
    uint64_t forward_hidden_ns = 0;
    // The calls that were launched amid a pass: after a quarter of its kernels, and before the last quarter.
    uint64_t amid_forward_steps = 0;
    uint64_t amid_backward_steps = 0;
    // The calls that were launched ahead of a forward pass, before a quarter of its kernels, and after a copy
    // of input or another pass of the step.
    uint64_t ahead_of_forward_steps = 0;
    void Merge(const Call& later);

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, token, steps, time_ns, hidden_ns, backward_steps, after_backward_ns,
                      forward_steps, forward_ns, forward_hidden_ns, amid_forward_steps, amid_backward_steps,
                      ahead_of_forward_steps);
    }
  };
  using Key = std::pair<uint32_t, uint32_t>;
  // Steps in which every micro-batch made the same calls, and their micro-batches.
  struct Repeats {
    uint64_t steps = 0;
    uint64_t times = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, steps, times);
    }
  };

  bool Knows(uint32_t token) const;
  void SetName(uint32_t token, const Name& name);
  // Adds a complete step. `operations` as in StepWindow, the first `own` are the step's. `index`: of the
  // step, while it is not known whether it is warm-up.
  void AddStep(std::span<const StepOperation> operations, size_t own, std::span<const StepPhase> phases,
               const StepRecord& record, std::optional<uint64_t> index);
  // Steps that were added with this index or a later one are not warm-up.
  void KeepFrom(uint64_t index);

  // By (coarse token, place in the step from 0).
  const std::map<Key, Call>& calls() const { return sums_.calls; }
  // By coarse token; without calls that are made in forward.
  const std::map<uint32_t, Repeats>& repeats() const { return sums_.repeats; }
  const absl::flat_hash_map<uint32_t, Name>& names() const { return names_; }
  uint64_t steps() const { return sums_.steps; }
  // Compute that was launched in forward, in all steps.
  uint64_t forward_compute_ns() const { return sums_.forward_compute_ns; }

 private:
  struct Sums {
    uint64_t steps = 0;
    uint64_t forward_compute_ns = 0;  // launched in forward
    std::map<Key, Call> calls;
    std::map<uint32_t, Repeats> repeats;
    void Add(const Sums& later);

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, steps, forward_compute_ns, calls, repeats);
    }
  };

  EarlySteps<Sums> early_;  // that may be warm-up
  Sums sums_;
  absl::flat_hash_map<uint32_t, Name> names_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, early_, sums_, names_);
  }
};

}  // namespace gpuprobe::model
