// Runs a body of the plan on the ranks of one thread: NCCL calls, and between them kernels, copies, ranges,
// allocations and questions to NCCL.
#pragma once

#include "tests/e2e/programs/random_calls.h"
#include "tests/e2e/programs/random_plan.h"
#include "tests/e2e/programs/random_rank.h"

namespace random_collectives {

class BodyRunner {
 public:
  explicit BodyRunner(const Crew& crew) : crew_(crew), calls_(crew) {}

  void Run(const Body& body);

 private:
  void Do(const Item& item);
  void Do(const Item& item, RankState& rank);
  void Range(uint64_t choice);

  const Crew& crew_;
  CallIssuer calls_;
  int ranges_ = 0;
};

}  // namespace random_collectives
