// NCCL's side of its profiler plugin: loads the library that NCCL_PROFILER_PLUGIN names and tells it of
// communicators and calls, as the real library does.
//
// Separate from the communicators and plans, which call it at the points where the real library does. Events
// told are a group for each plan, right after its kernel was launched, and the plan's collectives, sends and
// receives inside; AlltoAll, Gather and Scatter are told as what the real library makes them of: sends and
// receives for each peer. Captured plans are told nothing (the real library tells each replay, from a host
// function in the graph).
#pragma once

#include <cstdint>
#include <vector>

namespace gpusim::nccl {

struct Call;
class Communicator;

// Null when there is no plugin. The newest version that both have; at most $GPUSIM_NCCL_PLUGIN_VERSION (1 to
// 6).
void* OpenProfiler(const Communicator& communicator);
void CloseProfiler(void* context);

// A plan's kernel was launched on this thread.
void ProfilePlan(void* context, const Communicator& communicator, const std::vector<Call>& calls);

}  // namespace gpusim::nccl
