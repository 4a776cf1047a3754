// How long the transfers of one kind of collective took, over the whole run, as sums over blocks of
// consecutive calls (block_sums.h).
//
// The warm-up is known only later, and calls are not steps: each block remembers when its first call ended,
// and on which process's clock, so that a reader can leave out blocks that begin before that process's steps
// are steady. Memory: 3 x kMost numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/statistics/block_sums.h"

namespace gpuprobe::model {

class CallBlocks {
 public:
  static constexpr size_t kMost = 64;
  struct First {
    uint32_t process = 0;  // index into JobModel::processes
    uint64_t end_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, process, end_ns);
    }
  };

  void Add(uint32_t process, uint64_t end_ns, uint64_t transfer_ns) {
    const uint32_t before = transfer_ns_.shift();
    transfer_ns_.Add(calls_, transfer_ns);
    for (uint32_t shift = before; shift < transfer_ns_.shift(); ++shift) {
      for (size_t i = 0; 2 * i < first_.size(); ++i) first_[i] = first_[2 * i];
      first_.resize((first_.size() + 1) / 2);
    }
    if ((calls_ >> transfer_ns_.shift()) == first_.size()) first_.push_back({process, end_ns});
    ++calls_;
  }
  uint64_t calls() const { return calls_; }
  const BlockSums<kMost>& transfer_ns() const { return transfer_ns_; }
  const std::vector<First>& first() const { return first_; }  // by block

 private:
  uint64_t calls_ = 0;
  BlockSums<kMost> transfer_ns_;
  std::vector<First> first_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, calls_, transfer_ns_, first_);
    archive.Require(first_.size() <= kMost && first_.size() == transfer_ns_.At(transfer_ns_.shift()).size());
    if (!archive.ok()) *this = CallBlocks();
  }
};

}  // namespace gpuprobe::model
