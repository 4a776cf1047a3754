// Where the time of a process's steps went, over the whole run, as sums over blocks of consecutive steps
// (block_sums.h). `gpuprobe diff` compares two runs by them: up to kMost steps each step is a block.
//
// Contains only complete steps after the warm-up. Memory: 13 x kMost sums. Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collector/model/state/members.h"
#include "collector/model/statistics/block_sums.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// Parts of a step that are compared.
enum class StepPart : uint8_t {
  kTotal,
  kCompute,
  kExposedComm,
  kOverlappedComm,
  kCopy,
  kIdle,
  kHostBound,
  kInput,
  kSync,
  kMemory,
  kPause,
  kLaunchGap
};
inline constexpr size_t kStepParts = 12;

class StepBlocks {
 public:
  static constexpr size_t kMost = 128;
  using Sums = BlockSums<kMost>;

  // `ordinal`: of the step, counting the warm-up.
  void Add(uint64_t ordinal, const StepRecord& step) {
    const std::array<uint64_t, kStepParts> parts = {
        step.total_ns(), step.compute_ns, step.exposed_comm_ns, step.overlapped_comm_ns(),
        step.copy_ns,    step.idle_ns,    step.host_bound_ns,   step.input_ns,
        step.sync_ns,    step.memory_ns,  step.pause_ns,        step.launch_gap_ns};
    steps_.Add(ordinal, 1);
    for (size_t i = 0; i < kStepParts; ++i) parts_[i].Add(ordinal, parts[i]);
  }
  // How many steps each block has.
  const Sums& steps() const { return steps_; }
  const Sums& Of(StepPart part) const { return parts_[static_cast<size_t>(part)]; }

 private:
  Sums steps_;
  std::array<Sums, kStepParts> parts_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, steps_, parts_);
  }
};

}  // namespace gpuprobe::model
