#include "memory_situations.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "memory_checks.h"

namespace {

// A driver takes longer for physical memory than the node does, which would fill the rings of a probe that a
// busy machine does not let run.
void PauseAtTimes(size_t i) {
  if (i % 500 == 499) usleep(10'000);
}

}  // namespace

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
