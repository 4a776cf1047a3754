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
#include "collector/model/steps/step_series.h"

namespace gpuprobe::model {

class TransferSlices {
 public:
  static constexpr size_t kMost = 256;
  static constexpr uint64_t kLeastWidthNs = uint64_t{1} << 20;  // about a millisecond

  struct Slice {
    uint32_t plans = 0;
    uint64_t transfer_ns = 0;  // sum

    void Join(const Slice& next) {
      plans += next.plans;
      transfer_ns += next.transfer_ns;
    }

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, plans, transfer_ns);
    }
  };

  // A plan that ended at `end_ns`, of the process's clock; one before the first counts as the first.
  void Add(uint64_t end_ns, uint64_t transfer_ns) {
    columns_.At(end_ns / kLeastWidthNs).Join({.plans = 1, .transfer_ns = transfer_ns});
  }

  uint64_t start_ns() const { return columns_.first() * kLeastWidthNs; }
  uint64_t width_ns() const { return kLeastWidthNs << columns_.shift(); }
  const std::vector<Slice>& slices() const { return columns_.columns(); }

 private:
  // In the place of steps, least widths since the clock's beginning.
  StepColumns<Slice, kMost> columns_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    constexpr uint32_t kMostDoublings = 40;
    archive.Members(this, columns_);
    archive.Require(columns_.shift() <= kMostDoublings);
    if (!archive.ok()) *this = TransferSlices();
  }
};

}  // namespace gpuprobe::model
