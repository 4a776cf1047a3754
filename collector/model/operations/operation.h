// One piece of device work joined with its launch: the unit of every analysis of a step's time.
//
// records.h mirrors the wire; an operation exists only once the device's record and the host's launch have
// been joined.
#pragma once

#include <cstdint>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

// kUnseen: launched, and its record never came. Starts and ends at its launch.
enum class OperationKind : uint8_t { kKernel, kCollectiveKernel, kMemset, kCopy, kUnseen };

// As small as it can be: those of several steps wait. A kernel's stream is its site's.
struct Operation {
  uint64_t correlation = 0;  // orders launches of a process; one graph launch has many operations
  uint64_t graph_node = 0;
  uint64_t launch_ns = 0;  // API entry on the host; start_ns where the launch was not seen
  uint64_t start_ns = 0;   // on the device
  uint64_t end_ns = 0;
  uint64_t range = 0;   // innermost range at the launch, 0: none
  uint64_t bytes = 0;   // of a copy or memset; for a collective: count x element size of all its calls
  uint64_t plan = 0;    // of a collective's kernel, 0 where it is not known
  uint32_t comm = 0;    // Communicator of this process, of the plan's first call, 0 where it is not known
  uint32_t op = 0;      // StringDef of the first call's operation, or of what the kernel's name says
  uint32_t calls = 0;   // of the plan
  uint32_t site = 0;    // of a kernel: KernelSite
  uint32_t thread = 0;  // that launched: ThreadDef, 0 if not known
  uint32_t batch = 0;   // in which the record came
  OperationKind kind = OperationKind::kKernel;
  uint8_t direction = 0;     // of a copy: v1::CopyDirection
  uint16_t device = 0;       // ordinal
  bool pageable = false;     // of a copy: its host side is
  bool blocks_host = false;  // of a copy to the host: the call returned when it had ended
  bool launched = false;     // its launch was seen

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, correlation, graph_node, launch_ns, start_ns, end_ns, range, bytes, plan, comm, op,
                    calls, site, thread, batch, kind, direction, device, pageable, blocks_host, launched);
  }
};

}  // namespace gpuprobe::model
