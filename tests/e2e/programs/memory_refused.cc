/* Calls everything that obtains memory while there is too little of it, with something of every kind held, so
 * that each refusal can be held against the node's own ledger. Expects room for a MiB of page-locked memory.
 * With an argument: page-locked memory alone.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <vector>

#include "memory_checks.h"

namespace {

void RefusedRuntime(size_t more) {
  void* pointer = nullptr;
  size_t pitch = 0;
  cudaPitchedPtr volume{};
  EXPECT(cudaMalloc(&pointer, more) == cudaErrorMemoryAllocation);
  EXPECT(cudaMallocPitch(&pointer, &pitch, 1000, more / 1000) == cudaErrorMemoryAllocation);
  EXPECT(cudaMalloc3D(&volume, cudaExtent{1000, 100, more / 100'000}) == cudaErrorMemoryAllocation);
  EXPECT(cudaMallocManaged(&pointer, more, cudaMemAttachGlobal) == cudaErrorMemoryAllocation);
  EXPECT(cudaMallocHost(&pointer, 2 * kMiB) == cudaErrorMemoryAllocation);
  EXPECT(cudaHostAlloc(&pointer, 3 * kMiB, cudaHostAllocPortable) == cudaErrorMemoryAllocation);
  std::vector<char> host(4 * kMiB);
  EXPECT(cudaHostRegister(host.data(), host.size(), cudaHostRegisterDefault) == cudaErrorMemoryAllocation);
  const cudaChannelFormatDesc bytes = cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindUnsigned);
  cudaArray_t array = nullptr;
  cudaMipmappedArray_t levels = nullptr;
  EXPECT(cudaMallocArray(&array, &bytes, more / 4096, 4096, 0) == cudaErrorMemoryAllocation);
  EXPECT(cudaMalloc3DArray(&array, &bytes, cudaExtent{1024, 1024, more / kMiB}, 0) ==
         cudaErrorMemoryAllocation);
  EXPECT(cudaMallocMipmappedArray(&levels, &bytes, cudaExtent{more / 4096, 4096, 0}, 3, 0) ==
         cudaErrorMemoryAllocation);
  EXPECT(cudaMallocAsync(&pointer, more, nullptr) == cudaErrorMemoryAllocation);
  EXPECT(Twin<cudaError_t(void**, size_t, cudaStream_t)>("cudaMallocAsync_ptsz")(&pointer, more, nullptr) ==
         cudaErrorMemoryAllocation);
}

void RefusedDriver(size_t more) {
  CUdeviceptr address = 0;
  void* pointer = nullptr;
  size_t pitch = 0;
  EXPECT(cuMemAlloc(&address, more) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemAllocPitch(&address, &pitch, 1000, more / 1000, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemAllocManaged(&address, more, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemAllocHost(&pointer, 2 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemHostAlloc(&pointer, 3 * kMiB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<char> host(4 * kMiB);
  EXPECT(cuMemHostRegister(host.data(), host.size(), 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CUarray array = nullptr;
  CUmipmappedArray levels = nullptr;
  const CUDA_ARRAY_DESCRIPTOR flat{more / 4096, 4096, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  const CUDA_ARRAY3D_DESCRIPTOR deep{1024, 1024, more / kMiB, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  EXPECT(cuArrayCreate(&array, &flat) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuArray3DCreate(&array, &deep) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMipmappedArrayCreate(&levels, &deep, 3) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemAllocAsync(&address, more, nullptr) == CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(Twin<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync_ptsz")(&address, more, nullptr) ==
         CUDA_ERROR_OUT_OF_MEMORY);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemGenericAllocationHandle handle = 0;
  for (const CUmemLocationType place : {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
    properties.location.type = place;
    EXPECT(cuMemCreate(&handle, more, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  }
}

// Refused allocations from pools on the device, on the host and of managed memory, by all four calls.
void RefusedPools(size_t more) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  for (int i = 0; i < 3; ++i) {
    properties.location = {i == 1 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, 0};
    if (i == 2) properties.allocType = cudaMemAllocationTypeManaged;
    cudaMemPool_t pool = nullptr;
    void* pointer = nullptr;
    CUdeviceptr address = 0;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    EXPECT(cudaMallocFromPoolAsync(&pointer, more, pool, nullptr) == cudaErrorMemoryAllocation);
    EXPECT(cuMemAllocFromPoolAsync(&address, more, pool, nullptr) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(Twin<cudaError_t(void**, size_t, cudaMemPool_t, cudaStream_t)>("cudaMallocFromPoolAsync_ptsz")(
               &pointer, more, pool, nullptr) == cudaErrorMemoryAllocation);
    EXPECT(Twin<CUresult(CUdeviceptr*, size_t, CUmemoryPool, CUstream)>("cuMemAllocFromPoolAsync_ptsz")(
               &address, more, pool, nullptr) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cudaMemPoolDestroy(pool));
  }
}

// More than there is: the launch is refused.
void RefusedGraph(size_t more) {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, 0};
  params.bytesize = more;
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT(cudaGraphLaunch(exec, stream) == cudaErrorMemoryAllocation);
  EXPECT(cuGraphLaunch(exec, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char**) {
  CHECK(cudaSetDevice(0));
  if (argc > 1) {  // of the host alone
    void* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, kMiB / 4));
    Expect(cudaMallocHost(&pinned, kMiB) == cudaErrorMemoryAllocation, "refused");
    return 0;
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  void* held[4] = {};
  nvtxRangePushA("held");
  CHECK(cudaMalloc(&held[0], total_bytes / 2));
  CHECK(cudaMallocAsync(&held[1], total_bytes / 8, nullptr));
  CHECK(cudaMallocManaged(&held[2], total_bytes / 16, cudaMemAttachGlobal));
  CHECK(cudaMallocHost(&held[3], kMiB / 2));
  nvtxRangePop();
  const size_t more = total_bytes / 1000 * 1000 / (2 * kMiB) * (2 * kMiB);
  RefusedRuntime(more);
  RefusedDriver(more);
  RefusedPools(more);
  RefusedGraph(more);
  for (int i = 0; i < 3; ++i) CHECK(cudaFree(held[i]));
  CHECK(cudaFreeHost(held[3]));
  return 0;
}
