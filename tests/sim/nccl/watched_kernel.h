// Tells when a kernel of NCCL's starts and ends, on a thread of its own, as the real library's proxy learns
// it from counters that the kernel writes.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/sim/core/nccl_seam.h"

namespace gpusim::nccl {

// Called on that thread, once each, when the time has come.
class KernelWatcher {
 public:
  virtual ~KernelWatcher() = default;
  virtual void OnStart(uint64_t start_ns) = 0;
  virtual void OnEnd(uint64_t end_ns) = 0;
};

// From now on the launch's kernel has a watcher; for a launch at once, not for one that is captured.
void WatchKernel(RendezvousLaunch& launch, std::shared_ptr<KernelWatcher> watcher);

// Returns when the watchers of all kernels that have ended know it.
void SettleWatchers();

}  // namespace gpusim::nccl
