// A stand-in for libnccl that tests load: counts what it was called with, and "launches" kernels through a
// hook of the test's.
#pragma once

#include <nccl.h>

struct FakeNccl {
  // How often the function without prefix was called ("AllReduce"), under either name.
  int (*calls)(const char* name);
  void (*reset)();
  // Called for each kernel that a real NCCL would launch: on the call outside a group, else in the outermost
  // GroupEnd.
  void (*set_launch_hook)(void (*hook)(const char* kernel, cudaStream_t stream, const void* comm));
  // The next call of the function answers this instead of success.
  void (*fail_next)(const char* name, ncclResult_t result);
  // Called by ncclCommCount, where a real NCCL has an NVTX range.
  void (*set_query_hook)(void (*hook)());
};

// Exported as "fake_nccl".
extern "C" const FakeNccl* fake_nccl();  // NOLINT(readability-identifier-naming)
