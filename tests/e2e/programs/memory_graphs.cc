#include "memory_graphs.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

#include "memory_checks.h"

namespace {

cudaGraphExec_t Instantiate(cudaGraph_t graph, unsigned long long flags = 0) {
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, flags));
  return exec;
}

uint64_t GraphMemory(cudaGraphMemAttributeType attribute) {
  uint64_t bytes = 0;
  CHECK(cudaDeviceGetGraphMemAttribute(0, attribute, &bytes));
  return bytes;
}

// Captures three allocations: one gets another's address, and one outlives the launch.
void CapturedMemory(cudaStream_t stream) {
  void* first = nullptr;
  void* lasting = nullptr;
  void* again = nullptr;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMallocAsync(&first, kMiB + 1, stream));
  CHECK(cudaMallocAsync(&lasting, 2 * kMiB, stream));
  CHECK(cudaFreeAsync(first, stream));
  CHECK(cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(&again), kMiB, stream));
  CHECK(cudaMemsetAsync(again, 1, kMiB, stream));
  CHECK(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(again), stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  EXPECT(again == first);
  cudaGraphExec_t exec = Instantiate(graph);
  CHECK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaGraphLaunch(exec, stream));
    if (i == 1) EXPECT(cudaGraphLaunch(exec, stream) != cudaSuccess);  // what it left is still there
    CHECK(i == 2 ? cudaFree(lasting) : cudaFreeAsync(lasting, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
}

cudaGraphNode_t AddAllocation(cudaGraph_t graph, size_t bytes, void** address) {
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, 0};
  params.bytesize = bytes;
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  *address = params.dptr;
  return node;
}

// A graph that has its memory for itself; one that replaces what it left; one that releases what another
// left.
void HandMadeGraphs(cudaStream_t stream) {
  void* address = nullptr;
  void* handed_on = nullptr;
  cudaGraph_t graphs[4] = {};
  for (cudaGraph_t& graph : graphs) CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t node = AddAllocation(graphs[0], 5 * kMiB + 3, &address);
  cudaGraphNode_t release = nullptr;
  CHECK(cudaGraphAddMemFreeNode(&release, graphs[0], &node, 1, address));
  AddAllocation(graphs[1], 3 * kMiB, &address);
  AddAllocation(graphs[2], 7 * kMiB, &handed_on);
  CHECK(cudaGraphAddMemFreeNode(&release, graphs[3], nullptr, 0, handed_on));
  cudaGraphExec_t own = Instantiate(graphs[0]);
  cudaGraphExec_t replacing = Instantiate(graphs[1], cudaGraphInstantiateFlagAutoFreeOnLaunch);
  cudaGraphExec_t giving = Instantiate(graphs[2]);
  cudaGraphExec_t taking = Instantiate(graphs[3]);
  for (int i = 0; i < 2; ++i) {
    for (cudaGraphExec_t exec : {own, replacing, giving, taking}) CHECK(cudaGraphLaunch(exec, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(GraphMemory(cudaGraphMemAttrUsedMemCurrent) == 8 * kMiB + 3);
  EXPECT(GraphMemory(cudaGraphMemAttrReservedMemCurrent) == 16 * kMiB);
  CHECK(cudaFree(address));
  for (cudaGraphExec_t exec : {own, replacing, giving, taking}) CHECK(cudaGraphExecDestroy(exec));
  for (cudaGraph_t graph : graphs) CHECK(cudaGraphDestroy(graph));
  CHECK(cudaDeviceGraphMemTrim(0));
  EXPECT(GraphMemory(cudaGraphMemAttrReservedMemCurrent) == 0);
}

// The same by the call that adds nodes of any kind.
void NodesOfAnyKind(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t nodes[4] = {};
  cudaGraphNodeParams allocation{};
  allocation.type = cudaGraphNodeTypeMemAlloc;
  allocation.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  allocation.alloc.poolProps.location = {cudaMemLocationTypeDevice, 0};
  allocation.alloc.bytesize = 3 * kMiB + 1;
  CHECK(cudaGraphAddNode(&nodes[0], graph, nullptr, nullptr, 0, &allocation));
  cudaGraphNodeParams release{};
  release.type = cudaGraphNodeTypeMemFree;
  release.free.dptr = allocation.alloc.dptr;
  CHECK(cudaGraphAddNode(&nodes[1], graph, &nodes[0], nullptr, 1, &release));
  CUgraphNodeParams lasting{};
  lasting.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  lasting.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  lasting.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  lasting.alloc.bytesize = 2 * kMiB;
  CHECK(cuGraphAddNode(&nodes[2], graph, nullptr, nullptr, 0, &lasting));
  CUgraphNodeParams nothing{};
  nothing.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK(cuGraphAddNode(&nodes[3], graph, nullptr, nullptr, 0, &nothing));
  cudaGraphExec_t exec = Instantiate(graph);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cuMemFree(lasting.alloc.dptr));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// The child, two deep, has memory for itself, some that its parent releases, and releases what its parent
// allocated; the outermost graph leaves some. A graph that allocates can only be moved into another.
void ChildGraphs(cudaStream_t stream) {
  cudaGraph_t graphs[3] = {};
  void* own = nullptr;
  void* handed_up = nullptr;
  void* handed_down = nullptr;
  void* lasting = nullptr;
  for (cudaGraph_t& graph : graphs) CHECK(cudaGraphCreate(&graph, 0));
  const auto move = [](cudaGraph_t parent, cudaGraphNode_t after, cudaGraph_t child) {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeGraph;
    params.graph.graph = child;
    cudaGraphNode_t node = nullptr;
    EXPECT(cudaGraphAddNode(&node, parent, &after, nullptr, 1, &params) != cudaSuccess);
    EXPECT(cudaGraphAddChildGraphNode(&node, parent, &after, 1, child) != cudaSuccess);
    params.graph.ownership = cudaGraphChildGraphOwnershipMove;
    CHECK(cudaGraphAddNode(&node, parent, &after, nullptr, 1, &params));
    return node;
  };
  cudaGraphNode_t release = nullptr;
  cudaGraphNode_t given = AddAllocation(graphs[0], 6 * kMiB + 1, &handed_down);
  cudaGraphNode_t first = AddAllocation(graphs[2], 4 * kMiB + 5, &own);
  CHECK(cudaGraphAddMemFreeNode(&release, graphs[2], &first, 1, own));
  CHECK(cudaGraphAddMemFreeNode(&release, graphs[2], &release, 1, handed_down));
  AddAllocation(graphs[2], 2 * kMiB + 9, &handed_up);
  cudaGraphNode_t start = AddAllocation(graphs[1], kMiB, &lasting);
  cudaGraphNode_t held = move(graphs[1], start, graphs[2]);
  CHECK(cudaGraphAddMemFreeNode(&release, graphs[1], &held, 1, handed_up));
  move(graphs[0], given, graphs[1]);
  cudaGraph_t clone = nullptr;
  EXPECT(cudaGraphClone(&clone, graphs[0]) != cudaSuccess);
  cudaGraphExec_t none = nullptr;
  EXPECT(cudaGraphInstantiate(&none, graphs[1], 0) != cudaSuccess);
  cudaGraphExec_t exec = Instantiate(graphs[0]);
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaFreeAsync(lasting, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graphs[0]));
}

// More than there is: the launch is refused.
void GraphThatIsRefused(cudaStream_t stream) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  void* address = nullptr;
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  AddAllocation(graph, 2 * total_bytes, &address);
  cudaGraphExec_t exec = Instantiate(graph);
  EXPECT(cudaGraphLaunch(exec, stream) == cudaErrorMemoryAllocation);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

}  // namespace

void Graphs() {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CapturedMemory(stream);
  HandMadeGraphs(stream);
  NodesOfAnyKind(stream);
  ChildGraphs(stream);
  GraphThatIsRefused(stream);
  CHECK(cudaStreamDestroy(stream));
}
