// Transfers of a series of collectives and the waiting in them, without the start of the run: in calls before
// the first step after the warm-up, ranks wait for each other's compilation.
//
// The warm-up is known only once some steps are over (steady_runs.h), but calls are compared before that, in
// an order that depends on when each rank reports. So each call is assigned to the run of steps in which it
// ended, which makes the outcome independent of both. Memory: until the warm-up is known, sums for each run,
// and the calls of steps that are not known yet, at most kMaxPending.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/steady_runs.h"

namespace gpuprobe::model {

class SteadyTransfers {
 public:
  // Beyond, calls count towards the last known run.
  static constexpr size_t kMaxPending = 1024;

  struct Call {
    uint64_t end_ns = 0;
    uint64_t transfer_ns = 0;  // the shortest of the ranks
    uint64_t waited_ns = 0;    // what this rank took longer

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, end_ns, transfer_ns, waited_ns);
    }
  };
  struct Sums {
    uint64_t calls = 0;
    uint64_t transfer_ns = 0;
    absl::uint128 transfer_squares = 0;
    uint64_t waited_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, calls, transfer_ns, transfer_squares, waited_ns);
    }
  };

  // `runs`: of this process, as far as they are known.
  void Add(const Call& call, const SteadyRuns& runs);
  // No more calls come; `runs` are known.
  void Finish(const SteadyRuns& runs) { CountEarly(runs); }

  const Sums& sums() const { return sums_; }

 private:
  static void Count(const Call& call, Sums& sums);
  static void Merge(const Sums& from, Sums& into);
  // Assigns calls to their runs; `all`: even if their steps are not known yet.
  void Sort(const SteadyRuns& runs, bool all);
  void CountEarly(const SteadyRuns& runs);

  std::vector<Call> pending_;
  size_t next_sort_ = 16;     // calls that are pending
  std::vector<Sums> by_run_;  // as SteadyRuns::RunAt
  Sums sums_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, pending_, next_sort_, by_run_, sums_);
    archive.Require(pending_.size() <= kMaxPending && by_run_.size() <= SteadyRuns::kMaxRuns + 1);
  }
};

}  // namespace gpuprobe::model
