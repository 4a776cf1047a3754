// Parses the name of an NCCL kernel: which operations and which element types it can carry.
//
// A pure function of NCCL's naming, which changes with its versions:
// ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclDevKernel_SendRecv, ncclDevKernel_Generic_1,
// ncclSymkDevKernel_AllGather_..., ncclKernel_AllReduce_RING_LL_Sum_float. Any thread, no allocation.
#pragma once

#include <cstdint>
#include <cstring>

namespace gpuprobe::injector::nccl {

struct KernelTraits {
  uint16_t ops;        // bit per EntryPoint; 0: no kernel of NCCL's
  uint16_t datatypes;  // bit per ncclDataType_t
  // Its first argument is its communicator on the device. Kernels have it since NCCL 2.19, when they got this
  // name, except those of symmetric memory, which get it by value.
  bool takes_communicator;
};

inline constexpr uint16_t kAnyOp = 0xffff;
inline constexpr uint16_t kAnyDataType = 0xffff;

// True for the names of NCCL's kernels, by their start. Called at every launch of the program: a few
// instructions.
inline bool IsNcclKernel(const char* name) noexcept {
  if (name == nullptr) return false;
  if (name[0] == '_' && name[1] == 'Z') {
    name += 2;
    while (*name >= '0' && *name <= '9') ++name;
  }
  return std::strncmp(name, "nccl", 4) == 0;
}

// `name` as CUPTI gives it: mangled or plain, may be null.
KernelTraits ParseKernelName(const char* name) noexcept;

}  // namespace gpuprobe::injector::nccl
