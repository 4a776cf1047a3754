// How much of a step's communication is waiting for other ranks: in each step, the rank with the least
// communication did not wait.
//
// RankComparison says who made whom wait in each collective, but that waiting may be hidden behind compute,
// and then costs nothing. Steps are equally long on all ranks, so the exposed communication that a rank has
// beyond the rank with the least is time that the step lost to late ranks. Memory: a bounded number of steps
// that some ranks have not reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class StepSpread {
 public:
  static constexpr size_t kMaxOpen = 256;  // steps
  // A step counts if this share of the ranks reported it; all ranks: as many as reported any one step.
  static constexpr double kLeastRanks = 0.9;

  // Adds one rank's step. `step`: its number on all ranks.
  void Add(uint64_t step, uint64_t comm_ns, uint64_t exposed_comm_ns);

  // Per step, as means over steps; zero if none could be compared.
  struct Means {
    uint64_t steps = 0;
    double exposed_ns = 0;        // mean over ranks
    double least_exposed_ns = 0;  // of the rank with the least of it
    double least_comm_ns = 0;     // of the rank with the least of it
  };
  Means Summarize() const;

  struct Step {
    uint32_t ranks = 0;
    uint64_t exposed_ns = 0;  // sum
    uint64_t least_exposed_ns = UINT64_MAX;
    uint64_t least_comm_ns = UINT64_MAX;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, ranks, exposed_ns, least_exposed_ns, least_comm_ns);
    }
  };

 private:
  struct Sums {
    uint64_t steps = 0;
    uint64_t exposed_ns = 0;
    uint64_t least_exposed_ns = 0;
    uint64_t least_comm_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, steps, exposed_ns, least_exposed_ns, least_comm_ns);
    }
  };
  void Close(const Step& step, Sums& sums) const;

  std::map<uint64_t, Step> open_;
  uint64_t closed_before_ = 0;  // step
  uint32_t most_ranks_ = 0;
  Sums sums_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, open_, closed_before_, most_ranks_, sums_);
  }
};

}  // namespace gpuprobe::model
