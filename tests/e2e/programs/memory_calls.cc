/* Obtains and releases memory by every call of the runtime and the driver that the simulated node has, in
 * annotated ranges, so that what was captured can be held against the node's own ledger. `memory_calls
 * refused` asks for more than there is, `memory_calls pools` fills and empties pools, `memory_calls small`
 * makes small allocations between large ones, `memory_calls devices` uses two devices, `memory_calls handles`
 * has thousands of pieces of physical memory. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "memory_checks.h"
#include "memory_places.h"

namespace {

CUdeviceptr Device(void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

void RuntimeLinear() {
  void* linear = nullptr;
  void* pitched = nullptr;
  size_t pitch = 0;
  cudaPitchedPtr volume{};
  CHECK(cudaMalloc(&linear, 3 * kMiB + 5));
  CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 77));
  CHECK(cudaMalloc3D(&volume, cudaExtent{300, 20, 10}));
  CHECK(cudaMalloc(&linear, 0));  // nothing, successfully
  EXPECT(linear == nullptr);
  EXPECT(cudaMallocPitch(&linear, &pitch, 0, 0) != cudaSuccess);  // a bad argument: asks for nothing
  CHECK(cudaFree(nullptr));
  CHECK(cudaFree(pitched));
  CHECK(cudaMalloc(&linear, 1));
  CHECK(cudaFree(volume.ptr));
  CHECK(cudaFree(linear));
  int on_stack = 0;
  EXPECT(cudaFree(&on_stack) != cudaSuccess);
}

void DriverLinear() {
  CUdeviceptr linear = 0;
  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  CHECK(cuMemAlloc(&linear, 2 * kMiB + 1));
  CHECK(cuMemAllocPitch(&pitched, &pitch, 1025, 9, 8));
  CHECK(cuMemFree(linear));
  CHECK(cuMemFree(pitched));
}

void Host() {
  void* runtime = nullptr;
  void* flags = nullptr;
  void* driver = nullptr;
  void* plain = nullptr;
  CHECK(cudaMallocHost(&runtime, 12345));
  CHECK(cudaHostAlloc(&flags, 23456, cudaHostAllocPortable | cudaHostAllocMapped));
  CHECK(cuMemAllocHost(&driver, 34567));
  CHECK(cuMemHostAlloc(&plain, 45678, CU_MEMHOSTALLOC_WRITECOMBINED));
  CHECK(cudaFreeHost(runtime));
  std::vector<char> registered(size_t{8} * 4096);
  std::vector<char> by_driver(size_t{5} * 4096);
  CHECK(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault));
  EXPECT(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault) != cudaSuccess);
  CHECK(cuMemHostRegister(by_driver.data(), by_driver.size(), 0));
  CHECK(cudaHostUnregister(registered.data()));
  CHECK(cuMemHostUnregister(by_driver.data()));
  CHECK(cuMemFreeHost(flags));
  CHECK(cuMemFreeHost(driver));
  CHECK(cudaFreeHost(plain));
}

void Managed() {
  void* runtime = nullptr;
  CUdeviceptr driver = 0;
  CHECK(cudaMallocManaged(&runtime, 5 * kMiB, cudaMemAttachGlobal));
  CHECK(cuMemAllocManaged(&driver, 6 * kMiB, CU_MEM_ATTACH_GLOBAL));
  CHECK(cudaFree(runtime));
  CHECK(cuMemFree(driver));
}

void Pools() {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  void* pointers[4] = {};
  CUdeviceptr addresses[4] = {};
  CHECK(cudaMallocAsync(&pointers[0], 1 * kMiB, stream));
  CHECK(cudaMallocFromPoolAsync(&pointers[1], 2 * kMiB, pool, stream));
  CHECK(cuMemAllocAsync(&addresses[0], 3 * kMiB, stream));
  CHECK(cuMemAllocFromPoolAsync(&addresses[1], 4 * kMiB, pool, stream));
  CHECK(Twin<cudaError_t(void**, size_t, cudaStream_t)>("cudaMallocAsync_ptsz")(&pointers[2], 5001, nullptr));
  CHECK(Twin<cudaError_t(void**, size_t, cudaMemPool_t, cudaStream_t)>("cudaMallocFromPoolAsync_ptsz")(
      &pointers[3], 6001, pool, nullptr));
  CHECK(Twin<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync_ptsz")(&addresses[2], 7001, nullptr));
  CHECK(Twin<CUresult(CUdeviceptr*, size_t, CUmemoryPool, CUstream)>("cuMemAllocFromPoolAsync_ptsz")(
      &addresses[3], 8001, pool, nullptr));
  CHECK(cudaMemPoolTrimTo(pool, 0));
  CHECK(cudaFreeAsync(pointers[0], stream));
  CHECK(cuMemFreeAsync(Device(pointers[1]), stream));
  CHECK(Twin<cudaError_t(void*, cudaStream_t)>("cudaFreeAsync_ptsz")(pointers[2], nullptr));
  CHECK(Twin<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync_ptsz")(Device(pointers[3]), nullptr));
  CHECK(cudaFree(reinterpret_cast<void*>(addresses[0])));
  CHECK(cuMemFree(addresses[1]));
  CHECK(cudaFreeAsync(reinterpret_cast<void*>(addresses[2]), stream));
  CHECK(cuMemFreeAsync(addresses[3], stream));
  // Memory that no pool gave can be given back in order, too.
  void* linear = nullptr;
  CHECK(cudaMalloc(&linear, 9001));
  CHECK(cudaFreeAsync(linear, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(stream));
}

void Arrays() {
  const cudaChannelFormatDesc floats = cudaCreateChannelDesc(32, 32, 0, 0, cudaChannelFormatKindFloat);
  const cudaChannelFormatDesc bytes = cudaCreateChannelDesc(8, 8, 8, 8, cudaChannelFormatKindUnsigned);
  cudaArray_t flat = nullptr;
  cudaArray_t deep = nullptr;
  CHECK(cudaMallocArray(&flat, &floats, 100, 30, 0));
  CHECK(cudaMalloc3DArray(&deep, &bytes, cudaExtent{40, 30, 20}, 0));
  CUarray row = nullptr;
  CUarray layers = nullptr;
  const CUDA_ARRAY_DESCRIPTOR halves{1000, 0, CU_AD_FORMAT_HALF, 4};
  const CUDA_ARRAY3D_DESCRIPTOR ints{64, 32, 6, CU_AD_FORMAT_SIGNED_INT16, 2, CUDA_ARRAY3D_LAYERED};
  CHECK(cuArrayCreate(&row, &halves));
  CHECK(cuArray3DCreate(&layers, &ints));
  cudaMipmappedArray_t levels = nullptr;
  CUmipmappedArray driver_levels = nullptr;
  CHECK(cudaMallocMipmappedArray(&levels, &bytes, cudaExtent{65, 33, 0}, 5, 0));
  CHECK(cuMipmappedArrayCreate(&driver_levels, &ints, 3));
  CHECK(cudaFreeMipmappedArray(levels));
  CHECK(cuMipmappedArrayDestroy(driver_levels));
  // Without memory: it is mapped into them, if it is.
  CUarray sparse = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR none{512, 512, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SPARSE};
  CHECK(cuArray3DCreate(&sparse, &none));
  CHECK(cudaMallocMipmappedArray(&levels, &bytes, cudaExtent{256, 256, 0}, 5, cudaArrayDeferredMapping));
  CHECK(cuArrayDestroy(sparse));
  CHECK(cudaFreeMipmappedArray(levels));
  CHECK(cudaFreeArray(nullptr));
  CHECK(cudaFreeArray(flat));
  CHECK(cuArrayDestroy(row));
  CHECK(cudaFreeArray(reinterpret_cast<cudaArray_t>(layers)));
  CHECK(cuArrayDestroy(reinterpret_cast<CUarray>(deep)));
}

void VirtualMemory() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle first = 0;
  CUmemGenericAllocationHandle second = 0;
  CUmemGenericAllocationHandle again = 0;
  CUdeviceptr address = 0;
  CHECK(cuMemCreate(&first, 4 * kMiB, &properties, 0));
  CHECK(cuMemCreate(&second, 2 * kMiB, &properties, 0));
  CHECK(cuMemAddressReserve(&address, 10 * kMiB, 0, 0, 0));
  CHECK(cuMemMap(address, 4 * kMiB, 0, first, 0));
  CHECK(cuMemMap(address + 4 * kMiB, 2 * kMiB, 0, second, 0));
  CHECK(cuMemMap(address + 6 * kMiB, 4 * kMiB, 0, first, 0));
  CHECK(cuMemRelease(first));  // lives on in its mappings
  CHECK(cuMemRelease(second));
  CHECK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address + 5 * kMiB)));
  EXPECT(again == second);
  CHECK(cuMemUnmap(address, 4 * kMiB));
  CHECK(cuMemUnmap(address + 4 * kMiB, 2 * kMiB));  // retained
  CHECK(cuMemUnmap(address + 6 * kMiB, 4 * kMiB));  // the first one ends
  CHECK(cuMemCreate(&first, 2 * kMiB, &properties, 0));
  CHECK(cuMemRelease(again));
  CHECK(cuMemRelease(first));
  CHECK(cuMemAddressFree(address, 10 * kMiB));
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CHECK(cuMemCreate(&first, 16 * kMiB, &properties, 0));
  CHECK(cuMemRelease(first));
  EXPECT(cuMemCreate(&first, 12345, &properties, 0) != CUDA_SUCCESS);  // not a multiple of the granularity
}

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
  CHECK(cuMemFreeAsync(Device(again), stream));
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

// Memory of one device while another one is current, by pools and by physical memory; what a reset takes
// along.
void Devices() {
  cudaMemPool_t others = nullptr;
  cudaMemPool_t made = nullptr;
  cudaMemPool_t current = nullptr;
  void* pieces[4] = {};
  CHECK(cudaDeviceGetDefaultMemPool(&others, 1));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 1};
  CHECK(cudaMemPoolCreate(&made, &properties));
  CHECK(cudaMallocFromPoolAsync(&pieces[0], 3 * kMiB, others, nullptr));
  CHECK(cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(&pieces[1]), 5 * kMiB, made, nullptr));
  CHECK(cuDeviceSetMemPool(1, made));
  CHECK(cudaSetDevice(1));
  CHECK(cudaDeviceGetMemPool(&current, 1));
  EXPECT(current == made);
  CHECK(cudaMallocAsync(&pieces[2], 7 * kMiB, nullptr));
  CHECK(cudaMalloc(&pieces[3], kMiB));
  CHECK(cudaSetDevice(0));
  for (void* piece : pieces) CHECK(cudaFree(piece));
  CUmemAllocationProp physical{};
  physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, 6 * kMiB, &physical, 0));
  CHECK(cuMemRelease(handle));
  CHECK(cudaMalloc(&pieces[0], 11 * kMiB));
  CHECK(cudaMallocAsync(&pieces[1], 12 * kMiB, nullptr));
  CHECK(cudaMallocHost(&pieces[2], 13 * kMiB));
  CHECK(cuDevicePrimaryCtxReset(0));
  CHECK(cudaSetDevice(0));
  CHECK(cudaMalloc(&pieces[0], 2 * kMiB));
  CHECK(cudaFree(pieces[0]));
}

// A driver takes longer for physical memory than the node does, which would fill the rings of a probe that a
// busy machine does not let run.
void PauseAtTimes(size_t i) {
  if (i % 500 == 499) usleep(10'000);
}

// More physical memory at once than a program of today has: a caching allocator of 80 GiB in its smallest
// pieces.
void ManyHandles() {
  constexpr size_t kHandles = 20'000;
  constexpr size_t kGranule = 2 * kMiB;
  CUmemAllocationProp physical{};
  physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::vector<CUmemGenericAllocationHandle> handles(kHandles);
  CUdeviceptr address = 0;
  CHECK(cuMemAddressReserve(&address, kHandles * kGranule, 0, 0, 0));
  for (size_t i = 0; i < kHandles; ++i) {
    CHECK(cuMemCreate(&handles[i], kGranule, &physical, 0));
    if (i % 8 == 0) CHECK(cuMemMap(address + i * kGranule, kGranule, 0, handles[i], 0));
    CHECK(i % 8 == 0 ? cuMemRelease(handles[i]) : CUDA_SUCCESS);
    PauseAtTimes(i);
  }
  for (size_t i = 0; i < kHandles; ++i) {
    CHECK(i % 8 == 0 ? cuMemUnmap(address + i * kGranule, kGranule) : cuMemRelease(handles[i]));
    PauseAtTimes(i);
  }
  for (size_t i = 0; i < kHandles / 2; ++i) {
    CHECK(cuMemCreate(&handles[i], kGranule, &physical, 0));
    PauseAtTimes(i);
  }
  for (size_t i = 0; i < kHandles / 2; ++i) {
    CHECK(cuMemRelease(handles[i]));
    PauseAtTimes(i);
  }
  CHECK(cuMemAddressFree(address, kHandles * kGranule));
}

// Everything is left to the end of the context; what comes after starts from nothing.
void Contexts() {
  void* pointer = nullptr;
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc bytes = cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindUnsigned);
  CHECK(cudaMalloc(&pointer, 7 * kMiB));
  CHECK(cudaMallocHost(&pointer, 7 * kMiB));
  CHECK(cudaMallocManaged(&pointer, 7 * kMiB, cudaMemAttachGlobal));
  CHECK(cudaMallocAsync(&pointer, 7 * kMiB, nullptr));
  CHECK(cudaMallocArray(&array, &bytes, 1000, 1000, 0));
  CHECK(cudaDeviceReset());
  CHECK(cudaMalloc(&pointer, 8 * kMiB));
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CHECK(cuCtxCreate(&context, nullptr, 0, 0));
  CHECK(cuMemAlloc(&address, 2 * kMiB));
  CHECK(cuCtxDestroy(context));
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(pointer));
}

void Refused() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  void* held[3] = {};
  nvtxRangePushA("setup");
  CHECK(cudaMalloc(&held[0], total_bytes / 2));
  nvtxRangePushA("weights");
  CHECK(cudaMallocAsync(&held[1], total_bytes / 8, nullptr));
  nvtxRangePop();
  CHECK(cudaMallocManaged(&held[2], total_bytes / 16, cudaMemAttachGlobal));
  nvtxRangePop();
  nvtxRangePushA("step");
  nvtxRangePushA("activations");
  void* more = nullptr;
  EXPECT(cudaMalloc(&more, total_bytes / 2) == cudaErrorMemoryAllocation);
  CUdeviceptr address = 0;
  EXPECT(cuMemAllocManaged(&address, total_bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cudaMallocAsync(&more, total_bytes / 2 + 1, nullptr) == cudaErrorMemoryAllocation);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT(cuMemCreate(&handle, total_bytes, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR wide{total_bytes / 4096, 4096, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  EXPECT(cuArrayCreate(&array, &wide) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cudaMalloc(&more, 4096));  // what fits is still given
  CHECK(cudaFree(more));
  nvtxRangePop();
  nvtxRangePop();
  for (void* pointer : held) CHECK(cudaFree(pointer));
}

// Pools that grow, keep what they may, are trimmed and destroyed; the first of them is the device's own.
void PoolLevels() {
  cudaStream_t stream = nullptr;
  cudaMemPool_t pools[3] = {};
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceGetDefaultMemPool(&pools[0], 0));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPoolCreate(&pools[1], &properties));
  CHECK(cudaMemPoolCreate(&pools[2], &properties));
  uint64_t threshold = 64 * kMiB;
  CHECK(cudaMemPoolSetAttribute(pools[0], cudaMemPoolAttrReleaseThreshold, &threshold));
  void* pieces[12] = {};
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 12; ++i) {
      const size_t bytes = (i + 1 + static_cast<size_t>(round)) * 700'001;
      CHECK(cudaMallocFromPoolAsync(&pieces[i], bytes, pools[i % 3], stream));
    }
    for (size_t i = 0; i < 12; i += round == 1 ? 2 : 1) CHECK(cudaFreeAsync(pieces[i], stream));
    if (round == 1) CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 1; i < 12; i += 2) {
      if (round == 1) CHECK(cudaFree(pieces[i]));
    }
    CHECK(cudaMemPoolTrimTo(pools[1], 3 * kMiB));
    if (round == 0) CHECK(cudaDeviceSynchronize());
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMallocFromPoolAsync(&pieces[0], 5 * kMiB, pools[2], stream));
  CHECK(cudaMemPoolDestroy(pools[2]));
  CHECK(cudaFreeAsync(pieces[0], stream));
  CHECK(cudaMallocAsync(&pieces[1], 9 * kMiB, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
}

// The level is highest now in small allocations, now in large ones, and of two kinds.
void Small() {
  std::vector<void*> small(400);
  void* large[6] = {};
  for (size_t round = 0; round < 6; ++round) {
    for (size_t i = 0; i < 50; ++i) CHECK(cudaMalloc(&small[round * 50 + i], 100 + i * round));
    for (size_t i = 0; i < 50; i += 3) CHECK(cudaFree(small[round * 50 + i]));
    if (round == 4) CHECK(cudaFree(large[1]));
    CHECK(cudaMalloc(&large[round], kMiB + round));
    for (size_t i = 300; i < 400; ++i) CHECK(cudaMallocHost(&small[i], 64 + i));
    if (round == 3) CHECK(cudaFree(large[0]));
    for (size_t i = 300; i < 400; ++i) CHECK(cudaFreeHost(small[i]));
  }
  void* highest[40] = {};
  nvtxRangePushA("highest");
  for (void*& pointer : highest) CHECK(cudaMalloc(&pointer, 50'000));
  nvtxRangePop();
  for (void* pointer : highest) CHECK(cudaFree(pointer));
  for (size_t i = 0; i < 300; ++i) {
    if (i % 50 % 3 != 0) CHECK(cudaFree(small[i]));
  }
  for (size_t round = 2; round < 6; ++round) CHECK(cudaFree(large[round]));
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(cudaSetDevice(0));
  if (argc > 1 && std::strcmp(argv[1], "refused") == 0) {
    Refused();
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "pools") == 0) {
    PoolLevels();
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "small") == 0) {
    Small();
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "devices") == 0) {
    Devices();
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "handles") == 0) {
    ManyHandles();
    return 0;
  }
  struct Part {
    const char* name;
    void (*run)();
  };
  constexpr Part kParts[] = {{"runtime linear", RuntimeLinear},
                             {"driver linear", DriverLinear},
                             {"host", Host},
                             {"managed", Managed},
                             {"pools", Pools},
                             {"pools elsewhere", PoolsElsewhere},
                             {"driver forms", DriverForms},
                             {"arrays", Arrays},
                             {"virtual memory", VirtualMemory},
                             {"multicast objects", MulticastObjects},
                             {"tiles of sparse arrays", TilesOfSparseArrays},
                             {"graphs", Graphs},
                             {"contexts", Contexts},
                             {"last reference", LastReference}};
  for (const Part& part : kParts) {
    nvtxRangePushA(part.name);
    part.run();
    nvtxRangePop();
  }
  return 0;
}
