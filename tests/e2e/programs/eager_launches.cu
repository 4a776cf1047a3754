// Launches small kernels one by one, as eager frameworks do, and prints what a launch took: `eager_launches
// LAUNCHES BUSY_US [graph]`. BUSY_US: how long the host is busy with something else after each.
// graph: it makes a CUDA graph first.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "samples/common/check.h"

namespace {

__global__ void EagerKernel(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

void MakeGraph(cudaStream_t stream, int* counter) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EagerKernel<<<1, 32, 0, stream>>>(counter);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const long launches = argc > 2 ? std::atol(argv[1]) : 0;
  if (launches < 1) {
    std::fprintf(stderr, "usage: eager_launches LAUNCHES BUSY_US [graph]\n");
    return 2;
  }
  const std::chrono::microseconds busy(std::atol(argv[2]));
  int* counter = nullptr;
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaMalloc(&counter, sizeof(int)));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (argc > 3 && std::strcmp(argv[3], "graph") == 0) MakeGraph(stream, counter);
  const auto began = Clock::now();
  for (long i = 0; i < launches; ++i) {
    EagerKernel<<<1, 32, 0, stream>>>(counter);
    const auto until = Clock::now() + busy;
    while (Clock::now() < until) {
    }
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const std::chrono::duration<double, std::nano> took = Clock::now() - began;
  std::printf("%.0f ns a launch\n", took.count() / static_cast<double>(launches));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(counter));
  return 0;
}
