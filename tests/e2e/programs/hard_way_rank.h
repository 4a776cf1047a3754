// Each rank's device objects, and error handling that prints the error and exits; shared by several programs
// that reach NCCL in different ways.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/e2e/programs/hard_way_nccl.h"

namespace hard_way {

inline constexpr size_t kBufferBytes = size_t{1} << 20;

// Collectives, sends and receives of this program so far.
inline std::atomic<int> issued{0};

inline void Check(cudaError_t result, const char* file, int line) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, cudaGetErrorString(result));
  std::exit(1);
}

inline void Check(ncclResult_t result, const char* file, int line) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, NCCL(GetErrorString)(result));
  std::exit(1);
}

#define CHECK(call) ::hard_way::Check(call, __FILE__, __LINE__)
#define ISSUE(call)                              \
  do {                                           \
    ::hard_way::Check(call, __FILE__, __LINE__); \
    ++issued;                                    \
  } while (false)

// What one rank needs on its device.
struct Rank {
  explicit Rank(int on_device) : Rank(on_device, nullptr) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  Rank(int on_device, cudaStream_t on_stream) : device(on_device), stream(on_stream) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&in, kBufferBytes));
    CHECK(cudaMalloc(&out, kBufferBytes));
  }
  void Use() const { CHECK(cudaSetDevice(device)); }
  void Synchronize() const {
    Use();
    CHECK(cudaStreamSynchronize(stream));
  }
  void Free() const {
    Synchronize();
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    if (stream != nullptr) CHECK(cudaStreamDestroy(stream));
  }

  int device;
  cudaStream_t stream;
  ncclComm_t comm = nullptr;
  void* in = nullptr;
  void* out = nullptr;
};

// Until the communicator has done what it said is in progress.
inline void Await(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    CHECK(NCCL(CommGetAsyncError)(comm, &state));
    std::this_thread::yield();
  }
  CHECK(state);
}

}  // namespace hard_way
