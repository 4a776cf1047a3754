// Where the time of one step went: interval algebra over the operations of a process.
//
// Separate from the search for steps, which only says where one begins. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collector/model/steps/host_activity.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

struct StepWindow {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  // In launch order. The step's own operations come first; the rest was launched after it, and counts where
  // it runs before the step's end.
  std::span<const StepOperation> operations;
  size_t own = 0;
  uint64_t previous_launch_ns = 0;  // of the last operation before the step, 0 if there was none
  uint64_t between_ns = 0;          // work that belongs to no step ran from here to the start; 0: none did
  HostActivity host;
};

// Why the device was idle until the work that ended it was launched: the first of these that holds, for the
// whole of that time.
//   memory: calls that allocate or release memory take half of it
//   input: the host was silent, and a range named after loading covers half of it, or samples cover half of
//     it and half of these load
//   pause: the host was silent after copies to the host of kLeastCopiesOutUs, which it writes or works on
//   input: the host was silent, the step's first work is a copy to the device (an update of weights before it
//     is the step's before), and no samples contradict
//   sync: the host was blocked in a synchronising call when the device ran dry, and the call waited for more
//     than copies to a device that had been dry before; what samples say that it did afterwards is a pause
//   pause: the host was silent
//   host-bound: it was not: it was launching
//
// A host is silent when it launches nothing for kLeastSilenceNs and for kSilencePaces times the step's median
// distance between launches: a loop's own code between steps takes some tens of microseconds.
inline constexpr uint64_t kLeastSilenceNs = 50'000;
inline constexpr uint64_t kSilencePaces = 4;
// Calls that allocate or release memory are one with those that follow so soon: a loop over blocks.
inline constexpr uint64_t kBetweenCallsNs = 20'000;
// 1 MiB or more on a usual bus. A loss that is read takes 1 to 2 us.
inline constexpr uint32_t kLeastCopiesOutUs = 40;

// What the host did while the device was idle for it, as far as that is known.
struct StepHost {
  std::vector<HostShare> shares;
  // Looks at silences before the step's first copy to the device that saw a named place, and those of them
  // that saw the host load.
  uint64_t looks = 0;
  uint64_t loading_looks = 0;
};

// Everything of the record but its index and flags. `phases`: of each operation; only those of compute
// matter.
StepRecord MeasureStep(const StepWindow& window, std::span<const StepPhase> phases, StepHost* host = nullptr);

}  // namespace gpuprobe::model
