// A CUDA graph with NCCL calls that is captured again with other calls, again and again, and updates one
// executable graph, as training with changing shapes does; kernels whose functions are exchanged in it; an
// update that does not fit and changes nothing; a second executable graph that nobody updates.
//
// usage: graph_updates [UPDATES]   launched as ddp_train is

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr size_t kCount = 20000;

__global__ void Scale(float* values) { values[threadIdx.x] *= 2; }
__global__ void Shift(float* values) { values[threadIdx.x] += 1; }

struct World {
  gpuprobe::samples::RankIdentity identity;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
};

void AllReduce(const World& world, size_t count) {
  CHECK_NCCL(ncclAllReduce(world.buffer, world.buffer, count, ncclFloat, ncclSum, world.comm, world.stream));
}

// Four kernels, whatever the variant: what they do is another matter.
cudaGraph_t Capture(const World& world, int variant, bool one_more = false) {
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal));
  Scale<<<1, 32, 0, world.stream>>>(world.buffer);
  if (variant % 2 == 0) {
    AllReduce(world, kCount - static_cast<size_t>(variant));
  } else {
    CHECK_NCCL(ncclBroadcast(world.buffer, world.buffer, kCount / 2, ncclHalf, 1, world.comm, world.stream));
  }
  CHECK_NCCL(ncclAllGather(world.buffer, world.buffer, kCount / 8 + static_cast<size_t>(variant), ncclHalf,
                           world.comm, world.stream));
  CHECK_NCCL(ncclGroupStart());
  AllReduce(world, kCount / 2);
  AllReduce(world, kCount / 4 + static_cast<size_t>(variant));
  CHECK_NCCL(ncclGroupEnd());
  if (one_more) AllReduce(world, kCount);
  CHECK_CUDA(cudaStreamEndCapture(world.stream, &graph));
  return graph;
}

void Launch(const World& world, cudaGraphExec_t exec, int times) {
  for (int i = 0; i < times; ++i) CHECK_CUDA(cudaGraphLaunch(exec, world.stream));
}

cudaGraphNode_t FirstKernel(cudaGraph_t graph) {
  cudaGraphNode_t node = nullptr;
  size_t count = 1;
  CHECK_CUDA(cudaGraphGetRootNodes(graph, &node, &count));
  return node;
}

}  // namespace

int main(int argc, char** argv) {
  const int updates = argc > 1 ? std::atoi(argv[1]) : 3;
  World world;
  world.identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(world.identity);
  world.comm = gpuprobe::samples::JoinWorld(world.identity, "");
  CHECK_CUDA(cudaStreamCreateWithFlags(&world.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&world.buffer, kCount * sizeof(float)));

  cudaGraph_t graph = Capture(world, 0);
  cudaGraphExec_t updated = nullptr;
  cudaGraphExec_t untouched = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&updated, graph, 0));
  CHECK_CUDA(cudaGraphInstantiate(&untouched, graph, 0));
  Launch(world, updated, 2);
  Launch(world, untouched, 1);
  for (int i = 1; i <= updates; ++i) {
    cudaGraph_t other = Capture(world, i);
    cudaGraphExecUpdateResultInfo info{};
    CHECK_CUDA(cudaGraphExecUpdate(updated, other, &info));
    CHECK_CUDA(cudaGraphDestroy(other));
    Launch(world, updated, 2);
    Launch(world, untouched, 1);
  }
  cudaGraph_t larger = Capture(world, 9, true);
  cudaGraphExecUpdateResultInfo info{};
  if (cudaGraphExecUpdate(updated, larger, &info) == cudaSuccess) {
    std::fprintf(stderr, "an update from a larger graph succeeded\n");
    return 1;
  }
  cudaGetLastError();
  CHECK_CUDA(cudaGraphDestroy(larger));
  void* arguments[] = {&world.buffer};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(Shift);
  params.gridDim = {3, 1, 1};
  params.blockDim = {16, 1, 1};
  params.kernelParams = arguments;
  CHECK_CUDA(cudaGraphExecKernelNodeSetParams(updated, FirstKernel(graph), &params));
  Launch(world, updated, 2);
  CHECK_CUDA(cudaStreamSynchronize(world.stream));
  CHECK_CUDA(cudaGraphExecDestroy(updated));
  CHECK_CUDA(cudaGraphExecDestroy(untouched));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaFree(world.buffer));
  CHECK_CUDA(cudaStreamDestroy(world.stream));
  CHECK_NCCL(ncclCommDestroy(world.comm));
  return 0;
}
