#include "memory_places.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "memory_checks.h"

void DriverForms() {
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pools[3] = {};
  CUdeviceptr pieces[3] = {};
  CHECK(cuMemPoolCreate(&pools[0], &properties));
  CHECK(cuDeviceGetDefaultMemPool(&pools[1], 0));
  CHECK(cudaDeviceSetMemPool(0, pools[0]));
  CHECK(cuDeviceGetMemPool(&pools[2], 0));
  EXPECT(pools[2] == pools[0]);
  for (size_t i = 0; i < 3; ++i)
    CHECK(cuMemAllocFromPoolAsync(&pieces[i], (i + 1) * kMiB + i, pools[i], nullptr));
  CHECK(cuMemPoolTrimTo(pools[0], 0));
  for (const CUdeviceptr piece : pieces) CHECK(cuMemFreeAsync(piece, nullptr));
  CHECK(cuStreamSynchronize(nullptr));
  CHECK(cuMemPoolTrimTo(pools[0], 0));
  CHECK(cuMemPoolDestroy(pools[0]));

  CUgraph graph = nullptr;
  CUgraphNode nodes[3] = {};
  CUDA_MEM_ALLOC_NODE_PARAMS kept{};
  kept.poolProps = properties;
  kept.bytesize = 3 * kMiB + 3;
  CUDA_MEM_ALLOC_NODE_PARAMS released = kept;
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddMemAllocNode(&nodes[0], graph, nullptr, 0, &kept));
  CHECK(cuGraphAddMemAllocNode(&nodes[1], graph, nullptr, 0, &released));
  CHECK(cuGraphAddMemFreeNode(&nodes[2], graph, &nodes[1], 1, released.dptr));
  for (int way = 0; way < 3; ++way) {
    CUgraphExec exec = nullptr;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    cudaGraphInstantiateParams runtime_params{};
    CHECK(way == 0   ? static_cast<int>(cuGraphInstantiate(&exec, graph, 0))
          : way == 1 ? static_cast<int>(cuGraphInstantiateWithParams(&exec, graph, &params))
                     : static_cast<int>(cudaGraphInstantiateWithParams(&exec, graph, &runtime_params)));
    CHECK(way == 1 ? static_cast<int>(cudaGraphUpload(exec, nullptr))
                   : static_cast<int>(cuGraphUpload(exec, nullptr)));
    CHECK(cuGraphLaunch(exec, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    CHECK(cuMemFree(kept.dptr));
    CHECK(cuGraphExecDestroy(exec));
  }
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, nullptr));
  CHECK(cudaStreamSynchronize(nullptr));
  CHECK(cudaFree(reinterpret_cast<void*>(kept.dptr)));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuDeviceGraphMemTrim(0));
  CHECK(cuDevicePrimaryCtxRelease(0));
}

void LastReference() {
  CHECK(cudaDeviceReset());
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&address, 9 * kMiB));
  CHECK(cuDevicePrimaryCtxRelease(0));
  CHECK(cudaSetDevice(0));
  void* pointer = nullptr;
  CHECK(cudaMalloc(&pointer, 3 * kMiB));
  CHECK(cudaFree(pointer));
}

void PoolsElsewhere() {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  cudaMemPool_t pools[6] = {};
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeHost, 0};
  CHECK(cudaMemPoolCreate(&pools[0], &properties));
  properties.location = {cudaMemLocationTypeHostNuma, 0};
  CHECK(cudaMemPoolCreate(&pools[1], &properties));
  properties.allocType = cudaMemAllocationTypeManaged;
  properties.location = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPoolCreate(&pools[2], &properties));
  properties.location = {cudaMemLocationTypeHostNumaCurrent, 0};
  EXPECT(cudaMemPoolCreate(&pools[3], &properties) != cudaSuccess);
  cudaMemLocation place{cudaMemLocationTypeHost, 0};
  CHECK(cudaMemGetDefaultMemPool(&pools[3], &place, cudaMemAllocationTypePinned));
  CUmemLocation nowhere{};
  CHECK(cuMemGetDefaultMemPool(&pools[4], &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
  place = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemSetMemPool(&place, cudaMemAllocationTypeManaged, pools[2]));
  CHECK(cudaMemGetMemPool(&pools[5], &place, cudaMemAllocationTypeManaged));
  EXPECT(pools[5] == pools[2]);
  CUmemLocation numa{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CHECK(cuMemSetMemPool(&numa, CU_MEM_ALLOCATION_TYPE_PINNED, pools[1]));
  CUmemoryPool current = nullptr;
  CHECK(cuMemGetMemPool(&current, &numa, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT(current == pools[1]);
  void* pieces[5] = {};
  for (size_t i = 0; i < 5; ++i)
    CHECK(cudaMallocFromPoolAsync(&pieces[i], (i + 3) * kMiB + i, pools[i], stream));
  for (size_t i = 0; i < 5; ++i) CHECK(i % 2 == 0 ? cudaFreeAsync(pieces[i], stream) : cudaFree(pieces[i]));
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < 3; ++i) CHECK(cudaMemPoolDestroy(pools[i]));
  CHECK(cudaStreamDestroy(stream));
}

// Whoever maps memory into an array keeps it as long as the array does.
void TilesOfSparseArrays() {
  CUarray array = nullptr;
  CUmipmappedArray levels = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR shape{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SPARSE};
  CHECK(cuArray3DCreate(&array, &shape));
  CHECK(cuMipmappedArrayCreate(&levels, &shape, 8));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUmemGenericAllocationHandle memory[4] = {};
  for (size_t i = 0; i < 4; ++i) CHECK(cuMemCreate(&memory[i], (i + 2) * 2 * kMiB, &properties, 0));
  CUarrayMapInfo parts[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    parts[i].resourceType = i < 2 ? CU_RESOURCE_TYPE_ARRAY : CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    if (i < 2) parts[i].resource.array = array;
    if (i >= 2) parts[i].resource.mipmap = levels;
    parts[i].memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    parts[i].memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    parts[i].memHandle.memHandle = memory[i];
    parts[i].deviceBitMask = 1;
    parts[i].subresource.sparseLevel.offsetX = static_cast<unsigned>(64 * i);
    parts[i].subresource.sparseLevel.extentWidth = parts[i].subresource.sparseLevel.extentHeight = 64;
    parts[i].subresource.sparseLevel.extentDepth = 1;
  }
  parts[3].subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  parts[3].subresource.miptail = {0, 0, 64 << 10};
  CHECK(cuMemMapArrayAsync(parts, 4, nullptr));
  for (const CUmemGenericAllocationHandle handle : memory) CHECK(cuMemRelease(handle));
  CUmemGenericAllocationHandle more = 0;
  CHECK(cuMemCreate(&more, 40 * kMiB, &properties, 0));  // beside all four
  parts[1].memHandle.memHandle = more;
  CHECK(cuMemMapArrayAsync(&parts[1], 1, nullptr));  // instead of the second one, which ends
  CHECK(cuMemRelease(more));
  for (CUarrayMapInfo& part : parts) part.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  CHECK(cuMemMapArrayAsync(&parts[0], 1, nullptr));
  CHECK(cuMemMapArrayAsync(&parts[3], 1, nullptr));
  CHECK(cuMemCreate(&more, 6 * kMiB, &properties, 0));
  CHECK(cuMemRelease(more));
  CHECK(cuArrayDestroy(array));
  CHECK(cuMemCreate(&more, 50 * kMiB, &properties, 0));  // beside the third one alone
  CHECK(cuMemRelease(more));
  CHECK(cuMipmappedArrayDestroy(levels));
}

void MulticastObjects() {
  CUmulticastObjectProp team{};
  team.numDevices = 1;
  team.size = 64 * kMiB;
  CUmemGenericAllocationHandle object = 0;
  CHECK(cuMulticastCreate(&object, &team));
  CHECK(cuMulticastAddDevice(object, 0));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle memory[3] = {};
  CUdeviceptr address = 0;
  CHECK(cuMemAddressReserve(&address, 128 * kMiB, 0, 0, 0));
  for (size_t i = 0; i < 3; ++i) {
    CHECK(cuMemCreate(&memory[i], (i + 2) * 2 * kMiB, &properties, 0));
    CHECK(cuMemMap(address + i * 16 * kMiB, (i + 2) * 2 * kMiB, 0, memory[i], 0));
  }
  CHECK(cuMulticastBindMem(object, 0, memory[0], 0, 4 * kMiB, 0));
  CHECK(cuMulticastBindAddr(object, 8 * kMiB, address + 16 * kMiB + 2 * kMiB, 4 * kMiB, 0));
  CHECK(cuMulticastBindMem(object, 16 * kMiB, memory[2], 0, 2 * kMiB, 0));
  EXPECT(cuMulticastBindMem(object, 16 * kMiB, memory[2], 0, 2 * kMiB, 0) != CUDA_SUCCESS);
  CHECK(cuMemMap(address + 64 * kMiB, 64 * kMiB, 0, object, 0));
  for (size_t i = 0; i < 3; ++i) {
    CHECK(cuMemRelease(memory[i]));
    CHECK(cuMemUnmap(address + i * 16 * kMiB, (i + 2) * 2 * kMiB));
  }
  CUmemGenericAllocationHandle more = 0;
  CHECK(cuMemCreate(&more, 20 * kMiB, &properties, 0));  // beside all three
  CHECK(cuMemRelease(more));
  CHECK(cuMulticastUnbind(object, 0, 8 * kMiB, 4 * kMiB));  // the second one ends
  CHECK(cuMemRelease(object));
  CHECK(cuMemCreate(&more, 18 * kMiB, &properties, 0));  // the object is mapped, and keeps the others
  CHECK(cuMemRelease(more));
  CHECK(cuMemUnmap(address + 64 * kMiB, 64 * kMiB));
  CHECK(cuMemCreate(&more, 30 * kMiB, &properties, 0));
  CHECK(cuMemRelease(more));
  CHECK(cuMemAddressFree(address, 128 * kMiB));
}
