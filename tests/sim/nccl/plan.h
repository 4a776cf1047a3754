// Plans: which calls of a group share a kernel, and the launching of it.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <vector>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/nccl/group.h"

namespace gpusim::nccl {

// One kernel of one communicator: the group's calls that run by it, as the real library fuses them. With
// GPUSIM_NCCL_PLANS=one the first call's kernel runs all of them.
struct Plan {
  CommunicatorPtr communicator;
  std::vector<Call> calls;   // the largest first, as the real library orders them
  uint64_t duration_ns = 0;  // after the last arrival: alpha and the calls' bytes over the link
};

// In the order of the communicators' hashes; in each, collectives before sends and receives. One plan a
// communicator if all calls are fused.
std::vector<Plan> MakePlans(const std::vector<Call>& calls, bool fuse_all);
bool FusesAll();  // GPUSIM_NCCL_PLANS

// The meeting of its kernels, and its calls for the truth.
RendezvousLaunch LaunchOf(const Plan& plan);
ncclResult_t Launch(const Plan& plan);

// The truth of a call that launches nothing: it has no elements, is alone, or was refused with `result`.
void LogWithoutKernel(const Call& call, ncclResult_t result);

bool IsCaptured(CUstream stream);

}  // namespace gpusim::nccl
