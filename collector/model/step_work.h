// What each kernel costs a step of one process: calls and time, over the steps after the warm-up that were
// seen whole.
//
// Separate from the totals of kernels, which count every call of the run: two runs are compared by their
// steps, without what starts them, and with the spread from step to step. Memory: kMaxKernels sums. Not
// thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/numeric/int128.h"
#include "collector/model/early_steps.h"
#include "collector/model/step_operation.h"

namespace gpuprobe::model {

class StepWork {
 public:
  static constexpr size_t kMaxKernels = 8192;  // later ones are not counted

  // Over steps() steps, those without such a call among them.
  struct Sum {
    uint64_t calls = 0;
    uint64_t time_ns = 0;
    absl::uint128 squares = 0;  // of each step's time
    template <typename Archive>
    void Visit(Archive& archive);  // model_state.cc
  };

  // A step of which everything was seen: its operations and its length. `index`: of the step, while it is not
  // known whether it is warm-up.
  void AddStep(std::span<const StepOperation> own, uint64_t length_ns, std::optional<uint64_t> index);
  // Of the steps that were added with an index, those from this one on are no warm-up.
  void KeepFrom(uint64_t index);

  uint64_t steps() const { return sums_.steps; }
  // Of the kernels with this coarse token.
  Sum Of(uint32_t token) const;
  template <typename Archive>
  void Visit(Archive& archive);  // model_state.cc

 private:
  static constexpr uint32_t kNoPlace = 0;  // places count from 1
  struct Sums {
    uint64_t steps = 0;
    std::vector<Sum> kernels;  // by place, as far as it has any
    template <typename Archive>
    void Visit(Archive& archive);
    void Add(const Sums& later);
  };
  struct Part {
    uint32_t place = 0;
    uint32_t calls = 0;
    uint64_t time_ns = 0;
  };
  static void Count(const std::vector<Part>& step, Sums& sums);

  EarlySteps<Sums> early_;  // that may be warm-up
  Sums sums_;
  std::vector<uint32_t> places_;  // by token
  uint32_t kernels_ = 0;          // that have a place
  // Not state: empty but while a step is added.
  std::vector<uint32_t> part_of_;  // by place, from 1
  std::vector<Part> parts_;
};

}  // namespace gpuprobe::model
