// NCCL's side of the profiler plugin interface: loads the library that NCCL_PROFILER_PLUGIN names and reports
// communicators and calls to it, as the real library does.
//
// Communicators and plans call it at the points where the real library does. The plugin's mask selects the
// events by the real library's rule (ToldFor in plugin_abi.h). AlltoAll, Gather and Scatter are reported as
// the sends and receives, one for each peer, that the real library makes of them. For captured plans only the
// application's calls are reported (the real library also reports each replay, from a host function in the
// graph).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/sim/core/nccl_seam.h"

namespace gpusim::nccl {

struct Call;
class Communicator;

// Null when there is no plugin. The newest version that both have; at most $GPUSIM_NCCL_PLUGIN_VERSION (1 to
// 6).
void* OpenProfiler(const Communicator& communicator);
void CloseProfiler(void* context);

// From version 5 on: the application's call was taken, in the group that is open on this thread.
void ProfileApiCall(Call& call, bool captured);
// The outermost group has ended on this thread, its plans are launched or handed on.
void ProfileGroupEnd();
// The event of the group on this thread, null if there is none.
void* GroupApiEvent();

// From version 5 on: around the launch of a plan's kernel.
class ProfiledLaunch {
 public:
  ProfiledLaunch(const Communicator& communicator, void* stream, void* group);
  ~ProfiledLaunch();
  ProfiledLaunch(const ProfiledLaunch&) = delete;
  ProfiledLaunch& operator=(const ProfiledLaunch&) = delete;

 private:
  void* handle_ = nullptr;
};

// From version 3 on, a plugin may ask for the channels of a plan's kernel: it is called for each when the
// kernel starts and when it ends.
class ChannelEvents;
// Null when nobody asks.
std::shared_ptr<ChannelEvents> WatchChannels(const Communicator& communicator, RendezvousLaunch& launch);

// A plan's kernel was launched on this thread: a group of events, and the plan's collectives, sends and
// receives inside. `channels` may be null.
void ProfilePlan(const Communicator& communicator, const std::vector<Call>& calls,
                 const std::shared_ptr<ChannelEvents>& channels);

}  // namespace gpusim::nccl
