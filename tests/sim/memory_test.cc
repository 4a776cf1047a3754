// Capacity, accounting, pools, virtual memory, and what an address is.
#include <cupti.h>
#include <unistd.h>

#include <cstring>

#include "tests/sim/test_node.h"

namespace gpusim {
namespace {

class MemoryTest : public NodeTest {
 protected:
  static size_t FreeBytes() {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT_EQ(total_bytes, kMemoryBytes);
    return free_bytes;
  }
};

TEST_F(MemoryTest, EveryByteIsCountedUntilItIsFreed) {
  const size_t before = FreeBytes();
  void* a = nullptr;
  void* b = nullptr;
  ASSERT_CUDA(cudaMalloc(&a, 1000));
  ASSERT_CUDA(cudaMallocManaged(&b, 3'000'000, cudaMemAttachGlobal));
  EXPECT_EQ(FreeBytes(), before - 3'001'000);
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 1 << 20));
  EXPECT_EQ(FreeBytes(), before - 3'001'000) << "pinned memory is the host's";
  ASSERT_CUDA(cudaFree(a));
  ASSERT_CUDA(cudaFree(b));
  ASSERT_CUDA(cudaFreeHost(pinned));
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(MemoryTest, AFullDeviceRefusesAndRecovers) {
  const size_t before = FreeBytes();
  void* most = nullptr;
  void* more = nullptr;
  ASSERT_CUDA(cudaMalloc(&most, before - 100));
  EXPECT_EQ(cudaMalloc(&more, 101), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ASSERT_CUDA(cudaMalloc(&more, 100));
  EXPECT_EQ(FreeBytes(), 0U);
  ASSERT_CUDA(cudaFree(most));
  ASSERT_CUDA(cudaFree(more));
  EXPECT_EQ(FreeBytes(), before);
  size_t refused = 0;
  for (const std::string& line : TruthLines())
    refused += line.find("\"failed\":true") != std::string::npos ? 1 : 0;
  EXPECT_EQ(refused, 1U);
}

TEST_F(MemoryTest, OneDevicesMemoryIsNotAnothers) {
  void* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, FreeBytes()));
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(FreeBytes(), kMemoryBytes);
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaFree(pointer));
}

TEST_F(MemoryTest, WhatIsNoAllocationIsNotFreed) {
  int local = 0;
  EXPECT_EQ(cudaFree(&local), cudaErrorInvalidValue);
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 100));
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFreeHost(pinned));
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue) << "twice";
  EXPECT_CUDA(cudaFree(nullptr));
  cudaGetLastError();
}

TEST_F(MemoryTest, FreeWaitsForTheWorkThatMayUseIt) {
  void* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 100));
  cudaStream_t stream = NewStream();
  Launch(Slow(), stream);
  ASSERT_CUDA(cudaFree(pointer));
  EXPECT_CUDA(cudaStreamQuery(stream));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

uint64_t AttributeOf(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  uint64_t value = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
  return value;
}

TEST_F(MemoryTest, APoolGrowsByGranulesAndKeepsItsReleaseThreshold) {
  constexpr size_t kGranule = size_t{2} << 20;
  const size_t before = FreeBytes();
  cudaStream_t stream = NewStream();
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  ASSERT_CUDA(cudaMemPoolCreate(&pool, &properties));
  uint64_t threshold = 2 * kGranule;
  ASSERT_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  void* pieces[3] = {};
  for (void*& piece : pieces) ASSERT_CUDA(cudaMallocFromPoolAsync(&piece, kGranule + 100, pool, stream));
  EXPECT_EQ(AttributeOf(pool, cudaMemPoolAttrUsedMemCurrent), 3 * (kGranule + 100));
  EXPECT_EQ(AttributeOf(pool, cudaMemPoolAttrReservedMemCurrent), 4 * kGranule);
  EXPECT_EQ(FreeBytes(), before - 4 * kGranule);
  for (void* piece : pieces) ASSERT_CUDA(cudaFreeAsync(piece, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(AttributeOf(pool, cudaMemPoolAttrUsedMemCurrent), 0U);
  EXPECT_EQ(AttributeOf(pool, cudaMemPoolAttrReservedMemCurrent), 2 * kGranule);
  ASSERT_CUDA(cudaMemPoolTrimTo(pool, 1));
  EXPECT_EQ(AttributeOf(pool, cudaMemPoolAttrReservedMemCurrent), kGranule);
  EXPECT_EQ(AttributeOf(pool, cudaMemPoolAttrReservedMemHigh), 4 * kGranule);
  void* last = nullptr;
  ASSERT_CUDA(cudaMallocFromPoolAsync(&last, 5, pool, stream));
  ASSERT_CUDA(cudaMemPoolDestroy(pool));
  EXPECT_EQ(FreeBytes(), before - kGranule) << "it lives until its last allocation is gone";
  ASSERT_CUDA(cudaFreeAsync(last, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(MemoryTest, APoolsMemoryComesBackInStreamOrder) {
  const size_t before = FreeBytes();
  cudaStream_t stream = NewStream();
  void* pointer = nullptr;
  Launch(Slow(), stream);
  ASSERT_CUDA(cudaMallocAsync(&pointer, 5000, stream));
  ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  EXPECT_EQ(FreeBytes(), before - (size_t{2} << 20)) << "the stream has not come to it";
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(FreeBytes(), before);
  cudaMemPool_t pool = nullptr;
  ASSERT_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t high = 0;
  ASSERT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  EXPECT_GE(high, 5000U);
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(MemoryTest, AddressesSayWhatTheyAre) {
  void* device = nullptr;
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 100));
  ASSERT_CUDA(cudaMallocHost(&pinned, 100));
  int local = 0;
  cudaPointerAttributes attributes{};
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, static_cast<char*>(device) + 50));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_CUDA(cudaHostRegister(&local, sizeof local, cudaHostRegisterDefault));
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_CUDA(cudaHostUnregister(&local));
  EXPECT_CUDA(cudaFree(device));
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(MemoryTest, APhysicalHandleIsOneMemoryAtEveryMapping) {
  const size_t before = FreeBytes();
  constexpr size_t kBytes = 4U << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kBytes, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before - kBytes);
  CUdeviceptr at[2] = {};
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (CUdeviceptr& address : at) {
    ASSERT_EQ(cuMemAddressReserve(&address, kBytes, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(address, kBytes, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemSetAccess(address, kBytes, &access, 1), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before - kBytes) << "mappings hold it";
  const int there = 4711;
  int back = 0;
  ASSERT_EQ(cuMemcpyHtoD(at[0] + 4096, &there, sizeof there), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(&back, at[1] + 4096, sizeof back), CUDA_SUCCESS);
  EXPECT_EQ(back, 4711);
  for (CUdeviceptr address : at) {
    ASSERT_EQ(cuMemUnmap(address, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
  }
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(MemoryTest, OneCallUnmapsSeveralMappingsIfTheyAreWhole) {
  const size_t before = FreeBytes();
  constexpr size_t kBytes = 2U << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAddressReserve(&address, 4 * kBytes, 0, 0, 0), CUDA_SUCCESS);
  for (size_t i = 0; i < 2; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(cuMemCreate(&handle, (i + 1) * kBytes, &prop, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(address + i * kBytes, (i + 1) * kBytes, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuMemUnmap(address, 2 * kBytes), CUDA_ERROR_INVALID_VALUE) << "half of the second one";
  EXPECT_EQ(cuMemUnmap(address, 4 * kBytes), CUDA_ERROR_INVALID_VALUE) << "more than there is";
  EXPECT_EQ(FreeBytes(), before - 3 * kBytes);
  EXPECT_EQ(cuMemUnmap(address, 3 * kBytes), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_EQ(cuMemAddressFree(address, 4 * kBytes), CUDA_SUCCESS);
}

TEST_F(MemoryTest, WhatIsGivenBackIsNotGivenBackAgain) {
  void* pointer = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  ASSERT_CUDA(cudaMallocAsync(&pointer, 100, stream));
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { usleep(20'000); }, nullptr));
  EXPECT_CUDA(cudaFreeAsync(pointer, stream));
  EXPECT_EQ(cudaFreeAsync(pointer, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pointer), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

// Another context's stream has its release: until it comes there nobody else gets the address.
TEST_F(MemoryTest, AContextEndsBeforeWhatIsStillToBeGivenBack) {
  cudaStream_t stream = nullptr;
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  ASSERT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&address, 1000), CUDA_SUCCESS);
  ASSERT_CUDA(cudaSetDevice(0));
  const size_t before = FreeBytes();
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { usleep(20'000); }, nullptr));
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(FreeBytes(), before + 1000);
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

// What a launch left in a context ends with it.
TEST_F(MemoryTest, AContextTakesAlongWhatGraphsObtained) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_SUCCESS);
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, {0}};
  params.bytesize = 5000;
  ASSERT_CUDA(cudaGraphCreate(&graph, 0));
  ASSERT_CUDA(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, nullptr));
  uint64_t used = 0;
  ASSERT_CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
  EXPECT_EQ(used, 5000U);
  ASSERT_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
  ASSERT_CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
  EXPECT_EQ(used, 0U);
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_NE(cudaFree(params.dptr), cudaSuccess);
}

}  // namespace
}  // namespace gpusim
