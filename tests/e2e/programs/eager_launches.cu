// Launches small kernels one by one, as eager frameworks do: `eager_launches LAUNCHES BUSY_US`. BUSY_US: how
// long the host is busy with something else after each.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "samples/common/check.h"

namespace {

__global__ void EagerKernel(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const long launches = argc > 2 ? std::atol(argv[1]) : 0;
  if (launches < 1) {
    std::fprintf(stderr, "usage: eager_launches LAUNCHES BUSY_US\n");
    return 2;
  }
  const std::chrono::microseconds busy(std::atol(argv[2]));
  int* counter = nullptr;
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaMalloc(&counter, sizeof(int)));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (long i = 0; i < launches; ++i) {
    EagerKernel<<<1, 32, 0, stream>>>(counter);
    const auto until = Clock::now() + busy;
    while (Clock::now() < until) {
    }
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(counter));
  return 0;
}
