// CUDA graphs with NCCL calls that are put into other graphs: a graph that was captured, added as a child,
// and again, two deep; the whole cloned; a child that is moved instead of copied; children that are replaced
// in an executable graph, and changed by an update of the whole; a collective that is switched off and on.
//
// usage: child_graphs [REPLAYS]   launched as ddp_train is

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr size_t kCount = 20000;

__global__ void Scale(float* values) { values[threadIdx.x] *= 2; }

struct World {
  gpuprobe::samples::RankIdentity identity;
  ncclComm_t comm = nullptr;
  ncclComm_t half = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
  int replays = 1;
};

void AllReduce(const World& world, size_t count, ncclComm_t comm) {
  CHECK_NCCL(ncclAllReduce(world.buffer, world.buffer, count, ncclFloat, ncclSum, comm, world.stream));
}

void Begin(const World& world) {
  CHECK_CUDA(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal));
}

cudaGraph_t End(const World& world) {
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(world.stream, &graph));
  return graph;
}

// An AllReduce, a kernel, and a ring of sends and receives.
cudaGraph_t Ring(const World& world, size_t count) {
  const int ranks = world.identity.world_size;
  const int rank = world.identity.rank;
  Begin(world);
  AllReduce(world, count, world.comm);
  Scale<<<1, 32, 0, world.stream>>>(world.buffer);
  CHECK_NCCL(ncclGroupStart());
  CHECK_NCCL(ncclSend(world.buffer, count, ncclFloat, (rank + 1) % ranks, world.comm, world.stream));
  CHECK_NCCL(ncclRecv(world.buffer, count, ncclFloat, (rank + ranks - 1) % ranks, world.comm, world.stream));
  CHECK_NCCL(ncclGroupEnd());
  return End(world);
}

// Two fused calls, and one of a communicator that was split.
cudaGraph_t Fused(const World& world, size_t count) {
  Begin(world);
  CHECK_NCCL(ncclGroupStart());
  AllReduce(world, count / 2, world.comm);
  AllReduce(world, count / 4, world.comm);
  CHECK_NCCL(ncclGroupEnd());
  CHECK_NCCL(ncclAllGather(world.buffer, world.buffer, count / 8, ncclHalf, world.half, world.stream));
  return End(world);
}

cudaGraph_t OneCall(const World& world, size_t count) {
  Begin(world);
  CHECK_NCCL(
      ncclReduceScatter(world.buffer, world.buffer, count, ncclFloat, ncclSum, world.comm, world.stream));
  return End(world);
}

cudaGraphNode_t OnlyNode(cudaGraph_t graph) {
  cudaGraphNode_t node = nullptr;
  size_t count = 1;
  CHECK_CUDA(cudaGraphGetNodes(graph, &node, &count));
  return node;
}

// Children one after another.
class Children {
 public:
  explicit Children(cudaGraph_t parent) : parent_(parent) {
    size_t count = 0;
    CHECK_CUDA(cudaGraphGetNodes(parent, nullptr, &count));
    if (count != 0) last_ = OnlyNode(parent);
  }
  cudaGraphNode_t Add(cudaGraph_t child) {
    cudaGraphNode_t node = nullptr;
    CHECK_CUDA(cudaGraphAddChildGraphNode(&node, parent_, &last_, last_ == nullptr ? 0 : 1, child));
    return last_ = node;
  }
  // By the function that adds nodes of any type.
  cudaGraphNode_t AddAsNode(cudaGraph_t child, bool move) {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeGraph;
    params.graph.graph = child;
    if (move) params.graph.ownership = cudaGraphChildGraphOwnershipMove;
    cudaGraphNode_t node = nullptr;
    CHECK_CUDA(cudaGraphAddNode(&node, parent_, &last_, nullptr, last_ == nullptr ? 0 : 1, &params));
    return last_ = node;
  }

 private:
  cudaGraph_t parent_;
  cudaGraphNode_t last_ = nullptr;
};

cudaGraphExec_t Instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

void Launch(const World& world, cudaGraphExec_t exec) {
  for (int i = 0; i < world.replays; ++i) CHECK_CUDA(cudaGraphLaunch(exec, world.stream));
}

// A call, the ring, the fused calls and the ring again; all that twice, after a call of its own.
void Nested(const World& world) {
  cudaGraph_t ring = Ring(world, kCount);
  cudaGraph_t fused = Fused(world, kCount);
  cudaGraph_t middle = OneCall(world, 100);
  Children parts(middle);
  parts.Add(ring);
  parts.Add(fused);
  parts.AddAsNode(ring, false);
  cudaGraph_t top = OneCall(world, 200);
  Children halves(top);
  halves.Add(middle);
  halves.Add(middle);
  cudaGraph_t clone = nullptr;
  CHECK_CUDA(cudaGraphClone(&clone, top));
  cudaGraphExec_t execs[] = {Instantiate(top), Instantiate(clone), Instantiate(middle)};
  for (cudaGraph_t graph : {ring, fused, middle, top, clone}) CHECK_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < 2; ++i) {
    for (cudaGraphExec_t exec : execs) Launch(world, exec);
    AllReduce(world, kCount, world.comm);
  }
  for (cudaGraphExec_t exec : execs) CHECK_CUDA(cudaGraphExecDestroy(exec));
}

struct Parent {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t call = nullptr;
  cudaGraphNode_t ring = nullptr;
  cudaGraphNode_t fused = nullptr;
};

Parent MakeParent(const World& world, size_t count) {
  Parent parent;
  cudaGraph_t ring = Ring(world, count);
  cudaGraph_t fused = Fused(world, count);
  parent.graph = OneCall(world, count / 10);
  parent.call = OnlyNode(parent.graph);
  Children children(parent.graph);
  parent.ring = children.Add(ring);
  parent.fused = children.Add(fused);
  CHECK_CUDA(cudaGraphDestroy(ring));
  CHECK_CUDA(cudaGraphDestroy(fused));
  return parent;
}

void Replaced(const World& world) {
  const Parent parent = MakeParent(world, kCount);
  cudaGraphExec_t exec = Instantiate(parent.graph);
  cudaGraphExec_t untouched = Instantiate(parent.graph);
  Launch(world, exec);

  cudaGraph_t other = Ring(world, kCount / 2);
  CHECK_CUDA(cudaGraphExecChildGraphNodeSetParams(exec, parent.ring, other));
  Launch(world, exec);
  Launch(world, untouched);

  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = Fused(world, kCount / 4);
  CHECK_CUDA(cudaGraphExecNodeSetParams(exec, parent.fused, &params));
  Launch(world, exec);

  // One that does not fit changes nothing.
  if (cudaGraphExecChildGraphNodeSetParams(exec, parent.ring, params.graph.graph) == cudaSuccess) {
    std::fprintf(stderr, "a child of another shape was taken\n");
    std::exit(1);
  }
  cudaGetLastError();
  Launch(world, exec);

  const Parent updated = MakeParent(world, kCount / 5);
  cudaGraphExecUpdateResultInfo info{};
  CHECK_CUDA(cudaGraphExecUpdate(exec, updated.graph, &info));
  Launch(world, exec);
  Launch(world, untouched);

  CHECK_CUDA(cudaGraphNodeSetEnabled(exec, parent.call, 0));
  Launch(world, exec);
  unsigned int enabled = 1;
  CHECK_CUDA(cudaGraphNodeGetEnabled(exec, parent.call, &enabled));
  if (enabled != 0) std::exit(1);
  CHECK_CUDA(cudaGraphNodeSetEnabled(exec, parent.call, 1));
  Launch(world, exec);

  for (cudaGraph_t graph : {parent.graph, other, params.graph.graph, updated.graph})
    CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphExecDestroy(untouched));
}

// The parent owns the child, which was captured before the parent's own call; then an update from one whose
// child was captured after.
void Moved(const World& world) {
  const auto make = [&](size_t count, bool child_first) {
    cudaGraph_t child = child_first ? Ring(world, count) : nullptr;
    cudaGraph_t parent = OneCall(world, count / 10);
    if (child == nullptr) child = Ring(world, count);
    Children(parent).AddAsNode(child, true);
    return parent;
  };
  cudaGraph_t first = make(kCount, true);
  cudaGraph_t second = make(kCount / 2, false);
  cudaGraphExec_t exec = Instantiate(first);
  Launch(world, exec);
  cudaGraphExecUpdateResultInfo info{};
  CHECK_CUDA(cudaGraphExecUpdate(exec, second, &info));
  Launch(world, exec);
  CHECK_CUDA(cudaGraphDestroy(first));
  CHECK_CUDA(cudaGraphDestroy(second));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  if (argc > 1) world.replays = std::atoi(argv[1]);
  world.identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(world.identity);
  world.comm = gpuprobe::samples::JoinWorld(world.identity, "");
  CHECK_NCCL(ncclCommSplit(world.comm, world.identity.rank % 2, world.identity.rank, &world.half, nullptr));
  CHECK_CUDA(cudaStreamCreateWithFlags(&world.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&world.buffer, kCount * sizeof(float)));
  Nested(world);
  Replaced(world);
  Moved(world);
  CHECK_CUDA(cudaStreamSynchronize(world.stream));
  CHECK_CUDA(cudaFree(world.buffer));
  CHECK_CUDA(cudaStreamDestroy(world.stream));
  CHECK_NCCL(ncclCommDestroy(world.half));
  CHECK_NCCL(ncclCommDestroy(world.comm));
  return 0;
}
