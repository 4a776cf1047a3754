// An operation as the search for steps keeps it: small, because several steps' worth of them wait.
#pragma once

#include <cstdint>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

// The kind of work that occupies the device.
// kUnseen: launched, and its record never came; it takes no time and has no token.
enum class WorkClass : uint8_t {
  kCompute,
  kCommunication,
  kCopyToDevice,
  kCopyFromDevice,
  kCopyOther,
  kUnseen
};

// Its role in a step, by its name or the thread that launched it. Flags.
enum WorkRole : uint8_t {
  kRoleOptimizer = 1,
  kRoleBackwardName = 2,    // dgrad, wgrad, ..._backward
  kRoleAutogradThread = 4,  // launched by one of PyTorch's autograd threads
  kRoleMemset = 8,
  kRoleLossName = 16,
  kRoleMarker = 32,    // what the user says marks a step
  kRolePageable = 64,  // a copy whose host side is pageable memory
};

struct StepOperation {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t launch_ns = 0;
  uint64_t range = 0;  // innermost range at the launch
  // Equal operations of different steps have equal tokens: name, launch geometry; of a collective: operation,
  // communicator, size. `coarse` leaves out geometry and sizes, which change with the data.
  uint32_t token = 0;
  uint32_t coarse = 0;
  WorkClass work = WorkClass::kCompute;
  uint8_t roles = 0;
  bool launched = false;
  bool same_launch = false;  // as the operation before: nodes of one graph

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, start_ns, end_ns, launch_ns, range, token, coarse, work, roles, launched,
                    same_launch);
  }
};

}  // namespace gpuprobe::model
