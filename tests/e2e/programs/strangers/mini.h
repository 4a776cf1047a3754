// What the programs here share: a rank with its streams, and kernels whose time the simulated node sets by
// their names (GPUSIM_KERNELS).
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <string>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace strangers {

constexpr int kThreads = 256;

#define STRANGERS_KERNEL(name)                           \
  __global__ void name(float* data, int n) {             \
    const int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i < n) data[i] += 1;                             \
  }
STRANGERS_KERNEL(MatmulForward)
STRANGERS_KERNEL(MatmulBackward)
STRANGERS_KERNEL(ExpertGemm)
STRANGERS_KERNEL(AdamUpdate)
#undef STRANGERS_KERNEL

template <typename Kernel>
void Run(Kernel kernel, float* data, int n, cudaStream_t stream) {
  kernel<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(data, n);
  CHECK_CUDA(cudaGetLastError());
}

inline float* Floats(size_t count) {
  float* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, count * sizeof(float)));
  return data;
}

struct Rank {
  gpuprobe::samples::RankIdentity id = gpuprobe::samples::FindRankIdentity();
  cudaStream_t compute = nullptr;
  cudaStream_t link = nullptr;
  ncclComm_t world = nullptr;

  Rank() {
    gpuprobe::samples::ChooseDevice(id);
    for (cudaStream_t* stream : {&compute, &link})
      CHECK_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    world = gpuprobe::samples::JoinWorld(id, "");
  }
  // What is enqueued on `later` from now on runs after what is on `earlier`.
  void Order(cudaStream_t earlier, cudaStream_t later) const {
    CHECK_CUDA(cudaEventRecord(event_, earlier));
    CHECK_CUDA(cudaStreamWaitEvent(later, event_, 0));
  }
  void Send(const float* data, size_t n, int peer, cudaStream_t stream) const {
    CHECK_NCCL(ncclSend(data, n, ncclFloat, peer, world, stream));
  }
  void Receive(float* data, size_t n, int peer, cudaStream_t stream) const {
    CHECK_NCCL(ncclRecv(data, n, ncclFloat, peer, world, stream));
  }
  void Reduce(float* data, size_t n, cudaStream_t stream) const {
    CHECK_NCCL(ncclAllReduce(data, data, n, ncclFloat, ncclSum, world, stream));
  }
  void Finish() const {
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_NCCL(ncclCommDestroy(world));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace strangers
