// Makes communicators in every way that NCCL has, and ends them. Nothing may be pending on the ranks'
// communicators when one of these is called.
#pragma once

#include "tests/e2e/programs/random_plan.h"
#include "tests/e2e/programs/random_rank.h"

namespace random_collectives {

void MakeCommunicators(const Crew& crew, const Step& step);
// Tries what NCCL refuses, by some of the ranks only: nothing has happened.
void RefuseCommunicators(const Crew& crew, const Step& step);
// Destroys, aborts or revokes it.
void EndCommunicator(const Crew& crew, const Step& step);

}  // namespace random_collectives
