// Whether a rank is late more often than by chance, and by how much that lengthens a step.
//
// Separate from straggler_report.h, which says why: this is statistics over the steps (late_steps.h). By
// chance every rank is late as often as the others: the binomial distribution with the others' rate (at least
// the rate if one rank at a time is late) gives the probability of as many late steps as this rank has,
// corrected for the number of ranks and levels that it could have been (Bonferroni). If they are at equal
// distances, that is multiplied by the chance of such distances. Lateness beyond chance may still cost
// nothing: a rank whose host once fell behind stays behind in a job that hosts pace, and no step gets longer.
// So the steps in which it was late are compared with those in which it was not, and with the time that the
// others' hosts would have taken anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collector/analysis/stragglers/step_pattern.h"
#include "collector/model/job/late_steps.h"

namespace gpuprobe::analysis {

struct Lateness {
  uint64_t steps = 0;  // compared
  uint64_t late = 0;   // steps in which it was late
  // By how much (LateSteps::kLateShares): the lowest level that chance does not explain, or a higher one that
  // holds nearly all of its lateness in fewer steps.
  size_t level = 0;
  bool by_chance = true;
  double late_by_ns = 0;    // mean over these steps: the others' exposed communication less its own
  double longer_by_ns = 0;  // by which it lengthens these steps, at most late_by_ns
  // By how much these steps are longer than the others, whoever is at fault; 0: not known.
  double these_steps_longer_ns = 0;
  // Between which steps most of that was.
  std::optional<std::pair<uint64_t, uint64_t>> stretch;
  // From when on it was late, to the end: it was not before.
  std::optional<uint64_t> since_step;
  std::vector<uint64_t> late_steps;  // the first ones, ascending (StepHistory)
  std::optional<StepPattern> pattern;

  double share() const { return steps == 0 ? 0 : static_cast<double>(late) / static_cast<double>(steps); }
  // Over all steps.
  double lost_ns_per_step() const { return longer_by_ns * share(); }
};

// By process, as `ranks`.
std::vector<Lateness> LatenessOf(const std::vector<model::LateSteps::Rank>& ranks);

}  // namespace gpuprobe::analysis
