// Captures bodies of the plan into CUDA graphs, and instantiates, updates, launches and drops these. Nothing
// may be pending on the ranks' communicators when one of these is called.
#pragma once

#include <cstdint>
#include <set>

#include "tests/e2e/programs/random_plan.h"
#include "tests/e2e/programs/random_rank.h"

namespace random_collectives {

// Captures the step's tree and keeps the graph under its number.
void KeepGraph(const Crew& crew, const Step& step);
void InstantiateGraph(RankState& rank, const Step& step);
// Captures the step's tree and updates an executable graph with it.
void UpdateGraph(const Crew& crew, const Step& step);
void LaunchGraph(const Crew& crew, const Step& step);
void DropGraph(RankState& rank, int graph);
void DropExec(RankState& rank, int exec);
// Captured, instantiated, launched and dropped.
void RunGraph(const Crew& crew, const Tree& tree, const std::set<int>& comms, int launches, uint64_t salt);

}  // namespace random_collectives
