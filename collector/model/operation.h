// One piece of device work joined with its launch: what every analysis of a step's time is made of.
//
// Separate from records.h, which is what the wire says: an operation is known only when two streams have met,
// the device's record and the host's launch.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

// kUnseen: launched, and its record never came. Starts and ends at its launch.
enum class OperationKind : uint8_t { kKernel, kCollectiveKernel, kMemset, kCopy, kUnseen };

struct Operation {
  uint64_t correlation = 0;  // orders launches of a process; one graph launch has many operations
  uint64_t graph_node = 0;
  uint64_t launch_ns = 0;  // API entry on the host; start_ns where the launch was not seen
  uint64_t start_ns = 0;   // on the device
  uint64_t end_ns = 0;
  uint64_t range = 0;  // innermost range at the launch, 0: none
  uint64_t bytes = 0;  // of a copy or memset; of a collective: count x element size of all its calls
  // Of a collective's kernel, 0 where it is not known: its plan, and of that the first call's sequence
  // number.
  uint64_t plan = 0;
  uint64_t seq = 0;
  uint32_t comm = 0;    // Communicator of this process
  uint32_t op = 0;      // StringDef of the first call's operation, or of what the kernel's name says
  uint32_t calls = 0;   // of the plan
  uint32_t name = 0;    // of a kernel: StringDef
  uint32_t site = 0;    // of a kernel: KernelSite
  uint32_t thread = 0;  // that launched: ThreadDef, 0 if not known
  uint32_t device = 0;
  uint32_t stream = 0;
  uint32_t batch = 0;  // in which the record came
  OperationKind kind = OperationKind::kKernel;
  v1::CopyDirection direction = v1::COPY_DIRECTION_UNKNOWN;  // of a copy
  bool launched = false;                                     // its launch was seen
  template <typename Archive>
  void Visit(Archive& archive);  // model_state.cc
};

}  // namespace gpuprobe::model
