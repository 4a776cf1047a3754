// Sums of a series over blocks of consecutive values, in bounded memory, for comparing the means of two runs
// of any length.
//
// Value number n (a step's ordinal, a call's) is added to block n >> shift(). When a value does not fit in
// kMost blocks, neighbouring blocks are merged and blocks become twice as long.
//
// Example: with kMost = 4, values 0 to 3 have a block each. Value 4 makes the blocks {0,1} {2,3} {4,5}, value
// 8 {0..3} {4..7} {8..11}.
//
// A block's mean has less variance than its values, and what successive values share (a drift, a period)
// stays visible from block to block: a spread estimated from blocks is right where one estimated from values
// is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

template <size_t kMost>
class BlockSums {
 public:
  void Add(uint64_t number, uint64_t value) {
    while ((number >> shift_) >= kMost) Halve();
    const auto place = static_cast<size_t>(number >> shift_);
    if (sums_.size() <= place) sums_.resize(place + 1);
    sums_[place] += value;
  }
  // A block holds 2^shift() values.
  uint32_t shift() const { return shift_; }
  // As blocks of 2^`shift` values. REQUIRES: shift >= shift().
  std::vector<uint64_t> At(uint32_t shift) const {
    std::vector<uint64_t> out;
    for (size_t i = 0; i < sums_.size(); ++i) {
      const size_t place = i >> (shift - shift_);
      if (out.size() <= place) out.resize(place + 1);
      out[place] += sums_[i];
    }
    return out;
  }

 private:
  void Halve() {
    sums_ = At(shift_ + 1);
    ++shift_;
  }

  uint32_t shift_ = 0;
  std::vector<uint64_t> sums_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    constexpr uint32_t kMaxShift = 63;
    archive.Members(this, shift_, sums_);
    archive.Require(shift_ <= kMaxShift && sums_.size() <= kMost);
    if (!archive.ok()) *this = BlockSums();
  }
};

}  // namespace gpuprobe::model
