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
enum WorkRole : uint16_t {
  kRoleOptimizer = 1,
  kRoleBackwardName = 2,    // dgrad, wgrad, ..._backward
  kRoleAutogradThread = 4,  // launched by one of PyTorch's autograd threads
  kRoleMemset = 8,
  kRoleLossName = 16,
  kRoleMarker = 32,         // what the user says marks a step
  kRolePageable = 64,       // a copy whose host side is pageable memory
  kRoleForeach = 128,       // of the optimizers' kernels, one that calculates with lists of any tensors
  kRolePyTorch = 256,       // a kernel of PyTorch's own
  kRoleSeed = 512,          // PyTorch fills a few elements: it may be the one that backward() begins with
  kRoleNorm = 1024,         // a norm, as it is taken of gradients, or their scaling by it
  kRoleReduction = 2048,    // all ranks get a sum of at least kLeastReduction bytes
  kRoleForwardName = 4096,  // softmax_forward
  kRoleFlatten = 8192,      // puts tensors together
  kRoleCast = 16384,        // converts or copies a tensor
};
// Less than that are losses, norms and counters, and no gradients.
inline constexpr uint64_t kLeastReduction = 64 << 10;

struct StepOperation {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t launch_ns = 0;
  uint64_t range = 0;  // innermost range at the launch
  // Equal operations of different steps have equal tokens: name, launch geometry; of a collective: operation,
  // communicator, size. `coarse` leaves out geometry and sizes, which change with the data.
  uint32_t token = 0;
  uint32_t coarse = 0;
  // Copies to the host that came right before it in launch order: their time, in microseconds; 65,535: or
  // more.
  uint16_t after_copies_out_us = 0;
  uint16_t roles = 0;
  WorkClass work = WorkClass::kCompute;
  bool launched = false;
  bool same_launch = false;  // as the operation before: nodes of one graph

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, start_ns, end_ns, launch_ns, range, token, coarse, after_copies_out_us, roles, work,
                    launched, same_launch);
  }
};

// An operation's contribution to the sums of a step: whatever their order, two steps of the same operations
// have the same sums.
inline uint64_t TokenWeight(uint32_t token) {
  uint64_t x = token + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace gpuprobe::model
