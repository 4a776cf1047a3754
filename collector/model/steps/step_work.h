// Calls and time of each kernel per step of one process, over the complete steps after the warm-up.
//
// Separate from the kernels' totals, which count every call of the run: two runs are compared by their steps,
// without their warm-up and with the spread from step to step. For the spread, each kernel's time is also
// kept over blocks of steps (block_sums.h). Memory: kMaxKernels x (kMaxBlocks + 5) numbers. Not thread-safe:
// one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/numeric/int128.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/block_sums.h"
#include "collector/model/steps/early_steps.h"
#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {

class StepWork {
 public:
  static constexpr size_t kMaxKernels = 8192;  // later ones are not counted

  // Over steps() steps, including those without such a call.
  struct Sum {
    uint64_t calls = 0;
    uint64_t time_ns = 0;
    absl::uint128 squares = 0;  // of each step's time

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, calls, time_ns, squares);
    }
  };

  // So many, since they are kept for each kernel of each rank. Enough for a test with 30 degrees of freedom.
  static constexpr size_t kMaxBlocks = 32;
  using Blocks = BlockSums<kMaxBlocks>;

  // Adds a complete step: its operations and its length. `ordinal`: of the step, counting the warm-up;
  // `early`: it is not known yet whether it is warm-up.
  void AddStep(std::span<const StepOperation> own, uint64_t length_ns, uint64_t ordinal, bool early);
  // Early steps from this index on are not warm-up.
  void KeepFrom(uint64_t index);

  uint64_t steps() const { return sums_.steps; }
  // Copies whose host side is pageable memory.
  Sum pageable_to_device() const { return sums_.pageable_to_device; }
  Sum pageable_from_device() const { return sums_.pageable_from_device; }
  // Calls and time of the kernels with this coarse token.
  Sum Of(uint32_t token) const;
  // Over all steps, including the warm-up: how many each block has, and a kernel's time in it; nullptr if it
  // has none.
  const Blocks& step_blocks() const { return step_blocks_; }
  const Blocks* BlocksOf(uint32_t token) const;

 private:
  static constexpr uint32_t kNoPlace = 0;  // places count from 1
  struct Sums {
    uint64_t steps = 0;
    std::vector<Sum> kernels;  // by place, as far as it has any
    Sum pageable_to_device;
    Sum pageable_from_device;
    void Add(const Sums& later);

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, steps, kernels, pageable_to_device, pageable_from_device);
    }
  };
  struct Part {
    uint32_t place = 0;
    uint32_t calls = 0;
    uint64_t time_ns = 0;
  };
  static void Count(const std::vector<Part>& step, Sums& sums);
  static void CountPageable(std::span<const StepOperation> own, Sums& sums);

  EarlySteps<Sums> early_;  // that may be warm-up
  Sums sums_;
  Blocks step_blocks_;
  std::vector<Blocks> blocks_;    // of each kernel, by place
  std::vector<uint32_t> places_;  // by token
  uint32_t kernels_ = 0;          // that have a place
  // Not state: empty but while a step is added.
  std::vector<uint32_t> part_of_;  // by place, from 1
  std::vector<Part> parts_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    // Rebuilt: empty but while a step is added.
    archive.Members(this, Rebuilt(part_of_, parts_), early_, sums_, step_blocks_, blocks_, places_, kernels_);
    if constexpr (Archive::kReads) {
      archive.Require(kernels_ <= kMaxKernels && blocks_.size() <= kernels_);
      for (const uint32_t place : places_) archive.Require(place <= kernels_);
      if (!archive.ok()) *this = StepWork();
    }
  }
};

}  // namespace gpuprobe::model
