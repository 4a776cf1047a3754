// The transfers of a series of collectives, and the waiting for other ranks in it, without the start of the
// run: what is called before the first step after the warm-up has ranks wait for each other's compilation.
//
// Separate from the series' totals, which count every call: from when on calls are steady is known only once
// some steps are over, and calls are compared before that. Memory: kMaxEarly sums until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/numeric/int128.h"

namespace gpuprobe::model {

class SteadyTransfers {
 public:
  static constexpr size_t kMaxEarly = 64;

  struct Call {
    uint64_t end_ns = 0;
    uint64_t transfer_ns = 0;  // the shortest of the ranks
    uint64_t waited_ns = 0;    // what this rank took longer
  };
  struct Sums {
    uint64_t calls = 0;
    uint64_t transfer_ns = 0;
    absl::uint128 transfer_squares = 0;
    uint64_t waited_ns = 0;
    template <typename Archive>
    void Visit(Archive& archive);
  };

  // `from_ns`: when the first step after the warm-up began; nullopt: not known yet.
  void Add(const Call& call, std::optional<uint64_t> from_ns);
  // Nothing more is called. `from_ns`: 0 if there are no steps.
  void Finish(uint64_t from_ns) { CountEarly(from_ns); }

  const Sums& sums() const { return sums_; }
  template <typename Archive>
  void Visit(Archive& archive);  // model_state.cc

 private:
  // Of calls in a row; all count or none.
  struct Early {
    uint64_t first_end_ns = 0;
    Sums sums;
    template <typename Archive>
    void Visit(Archive& archive);
  };
  static void Count(const Call& call, Sums& sums);
  static void Merge(const Sums& from, Sums& into);
  void CountEarly(uint64_t from_ns);

  std::vector<Early> early_;
  uint64_t calls_of_early_ = 1;  // of each but the last
  Sums sums_;
};

}  // namespace gpuprobe::model
