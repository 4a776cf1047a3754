// The transfers of a series of collectives, and the waiting for other ranks in it, without the start of the
// run: what is called before the first step after the warm-up has ranks wait for each other's compilation.
//
// Separate from the series' totals, which count every call: from when on calls are steady is known only once
// some steps are over, and calls are compared before that. Memory: kMaxEarly calls until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/numeric/int128.h"

namespace gpuprobe::model {

class SteadyTransfers {
 public:
  static constexpr size_t kMaxEarly = 1024;  // beyond, the older half is forgotten: the start of the run

  struct Call {
    uint64_t end_ns = 0;
    uint64_t transfer_ns = 0;  // the shortest of the ranks
    uint64_t waited_ns = 0;    // what this rank took longer
    template <typename Archive>
    void Visit(Archive& archive);  // model_state.cc
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
  void Count(const Call& call, uint64_t from_ns);
  void CountEarly(uint64_t from_ns);

  std::vector<Call> early_;
  Sums sums_;
};

}  // namespace gpuprobe::model
