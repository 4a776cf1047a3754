// Transfers of a series of collectives in slices of the run's time, in bounded memory: what the page shows of
// the steps that somebody selects.
//
// Calls are compared across ranks after the fact, when the steps that they belong to may not be known yet, so
// they are counted by when they ended. Slices are twice as long whenever kMost of them do not reach far
// enough. Memory: kMost slices. Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class TransferSlices {
 public:
  static constexpr size_t kMost = 256;
  static constexpr uint64_t kLeastWidthNs = uint64_t{1} << 20;  // about a millisecond

  struct Slice {
    uint32_t plans = 0;
    uint64_t transfer_ns = 0;  // sum

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, plans, transfer_ns);
    }
  };

  // A plan that ended at `end_ns`, of the process's clock; one before the first counts as the first.
  void Add(uint64_t end_ns, uint64_t transfer_ns) {
    if (slices_.empty()) start_ns_ = end_ns;
    const uint64_t since_ns = end_ns > start_ns_ ? end_ns - start_ns_ : 0;
    while (since_ns / width_ns() >= kMost) Halve();
    const auto place = static_cast<size_t>(since_ns / width_ns());
    if (slices_.size() <= place) slices_.resize(place + 1);
    ++slices_[place].plans;
    slices_[place].transfer_ns += transfer_ns;
  }

  uint64_t start_ns() const { return start_ns_; }
  uint64_t width_ns() const { return kLeastWidthNs << doublings_; }
  const std::vector<Slice>& slices() const { return slices_; }

 private:
  void Halve() {
    for (size_t i = 0; i < slices_.size(); ++i) {
      const Slice slice = slices_[i];
      if (i % 2 == 0) slices_[i / 2] = {};
      slices_[i / 2].plans += slice.plans;
      slices_[i / 2].transfer_ns += slice.transfer_ns;
    }
    slices_.resize((slices_.size() + 1) / 2);
    ++doublings_;
  }

  uint64_t start_ns_ = 0;
  uint32_t doublings_ = 0;
  std::vector<Slice> slices_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    constexpr uint32_t kMostDoublings = 40;
    archive.Members(this, start_ns_, doublings_, slices_);
    archive.Require(doublings_ <= kMostDoublings && slices_.size() <= kMost);
    if (!archive.ok()) *this = TransferSlices();
  }
};

}  // namespace gpuprobe::model
