// What a real NCCL's kernels write for its profiler: how many works each channel has started and completed,
// and when. Its proxy waits for them once a plugin asks for channels of kernels, and does not end before.
//
// This is the one thing for which the node reads NCCL's own structures: the arguments of a kernel and the
// beginning of a communicator on the device (src/include/device.h), which are the same from 2.27 to 2.30.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "tests/sim/nccl/watched_kernel.h"

namespace gpusim::nccl {

// Of a communicator.
struct WorkCounts {
  std::mutex mutex;
  std::map<int, uint64_t> by_channel;  // works so far
  bool gone = false;                   // with its memory
};

// Writes them as the kernel starts and ends; null if this NCCL is none of those releases.
std::shared_ptr<KernelWatcher> CountWorks(const void* arguments, std::shared_ptr<WorkCounts> counts);

}  // namespace gpusim::nccl
