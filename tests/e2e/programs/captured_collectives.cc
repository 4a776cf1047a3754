// NCCL calls that are captured into CUDA graphs: alone, fused in a group, sent in a ring, on a communicator
// that was split; replayed through two executable graphs of one capture and through one of its clone, with
// calls that are launched at once in between.
//
// usage: captured_collectives [REPLAYS [STEPS]]   launched as ddp_train is; the steps come first, without a
// graph

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr size_t kCount = 20000;

struct World {
  gpuprobe::samples::RankIdentity identity;
  ncclComm_t comm = nullptr;
  ncclComm_t half = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
};

void AllReduce(const World& world, size_t count, ncclComm_t comm) {
  CHECK_NCCL(ncclAllReduce(world.buffer, world.buffer, count, ncclFloat, ncclSum, comm, world.stream));
}

void Step(const World& world) {
  const int ranks = world.identity.world_size;
  CHECK_CUDA(cudaMemsetAsync(world.buffer, 0, kCount * sizeof(float), world.stream));
  AllReduce(world, kCount, world.comm);
  CHECK_NCCL(ncclAllGather(world.buffer, world.buffer, kCount / 4, ncclHalf, world.comm, world.stream));
  CHECK_NCCL(ncclGroupStart());
  AllReduce(world, kCount / 2, world.comm);
  AllReduce(world, kCount / 4, world.comm);
  AllReduce(world, kCount / 8, world.half);
  CHECK_NCCL(ncclGroupEnd());
  CHECK_NCCL(ncclGroupStart());
  CHECK_NCCL(
      ncclSend(world.buffer, kCount, ncclFloat, (world.identity.rank + 1) % ranks, world.comm, world.stream));
  CHECK_NCCL(ncclRecv(world.buffer, kCount, ncclFloat, (world.identity.rank + ranks - 1) % ranks, world.comm,
                      world.stream));
  CHECK_NCCL(ncclGroupEnd());
}

cudaGraphExec_t Instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

}  // namespace

// By its name, for a program that opens this as a module.
extern "C" int RunCollectives(int argc, char** argv) {
  const int replays = argc > 1 ? std::atoi(argv[1]) : 3;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 1;
  World world;
  world.identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(world.identity);
  world.comm = gpuprobe::samples::JoinWorld(world.identity, "");
  CHECK_NCCL(ncclCommSplit(world.comm, world.identity.rank % 2, world.identity.rank, &world.half, nullptr));
  CHECK_CUDA(cudaStreamCreateWithFlags(&world.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&world.buffer, kCount * sizeof(float)));
  for (int i = 0; i < steps; ++i) Step(world);

  cudaGraph_t graph = nullptr;
  cudaGraph_t clone = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal));
  Step(world);
  CHECK_CUDA(cudaStreamEndCapture(world.stream, &graph));
  CHECK_CUDA(cudaGraphClone(&clone, graph));
  cudaGraphExec_t execs[] = {Instantiate(graph), Instantiate(graph), Instantiate(clone)};
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaGraphDestroy(clone));

  for (int i = 0; i < replays; ++i) {
    for (cudaGraphExec_t exec : execs) CHECK_CUDA(cudaGraphLaunch(exec, world.stream));
    AllReduce(world, kCount, world.comm);
  }
  CHECK_CUDA(cudaStreamSynchronize(world.stream));
  for (cudaGraphExec_t exec : execs) CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaFree(world.buffer));
  CHECK_CUDA(cudaStreamDestroy(world.stream));
  CHECK_NCCL(ncclCommDestroy(world.half));
  CHECK_NCCL(ncclCommDestroy(world.comm));
  return 0;
}

int main(int argc, char** argv) { return RunCollectives(argc, argv); }
