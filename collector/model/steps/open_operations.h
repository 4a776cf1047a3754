// The operations of one process that are in no complete step yet, in launch order.
//
// A position counts all operations of the process, so that it stays valid while older ones are forgotten. Of
// those it remembers when the last one ended and was launched: the next step's time begins there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {

class OpenOperations {
 public:
  void Add(const StepOperation& operation) { open_.push_back(operation); }
  const StepOperation& At(uint64_t position) const { return open_[static_cast<size_t>(position - base_)]; }
  // Positions of the first one, and after the last one.
  uint64_t Begin() const { return base_; }
  uint64_t End() const { return base_ + open_.size(); }
  size_t size() const { return open_.size(); }
  bool empty() const { return open_.empty(); }
  std::span<const StepOperation> Between(uint64_t begin, uint64_t end) const {
    return From(begin).first(static_cast<size_t>(end - begin));
  }
  std::span<const StepOperation> From(uint64_t begin) const {
    return std::span<const StepOperation>(open_).subspan(static_cast<size_t>(begin - base_));
  }
  std::span<StepOperation> all() { return open_; }
  uint64_t forgotten_until_ns() const { return forgotten_until_ns_; }
  uint64_t last_forgotten_launch_ns() const { return last_launch_ns_; }

  // False: there was nothing before.
  bool ForgetBefore(uint64_t position);

 private:
  uint64_t base_ = 0;                // position of open_.front()
  std::vector<StepOperation> open_;  // in launch order
  uint64_t forgotten_until_ns_ = 0;  // latest end of the operations that are no longer in open_
  uint64_t last_launch_ns_ = 0;      // the latest launch of these

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, base_, open_, forgotten_until_ns_, last_launch_ns_);
  }
};

}  // namespace gpuprobe::model
