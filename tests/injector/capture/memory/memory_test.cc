// Allocations as the memory part reads them from callbacks that are made up here.
#include <set>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/context_devices.h"
#include "injector/capture/memory/array_bytes.h"
#include "injector/capture/memory/part.h"
#include "injector/capture/memory/pool_devices.h"
#include "injector/core/guard.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector {
namespace {

void* const kContext = reinterpret_cast<void*>(0xc0);

class Memory : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    kMemoryPart.start();
    NoteContextDevice(kContext, 3);
  }

  // The exit of an API function.
  template <typename Params>
  static void Exit(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const Params& params, int result = 0,
                   uint32_t correlation = ++last_correlation) {
    ASSERT_TRUE(WantsApi(domain, cbid)) << cbid;
    CUpti_CallbackData data = {};
    data.callbackSite = CUPTI_API_EXIT;
    data.functionParams = &params;
    data.functionReturnValue = &result;
    data.context = static_cast<CUcontext>(kContext);
    data.correlationId = correlation;
    last_correlation = correlation;
    const Guard guard;
    ASSERT_TRUE(guard);
    DispatchApi(guard.thread(), domain, cbid, data);
  }
  template <typename Params>
  static void Driver(CUpti_CallbackId cbid, const Params& params, int result = 0) {
    Exit(CUPTI_CB_DOMAIN_DRIVER_API, cbid, params, result);
  }
  // A runtime call around the driver call that was made last.
  template <typename Params>
  static void RuntimeAround(CUpti_CallbackId cbid, const Params& params, int result = 0) {
    Exit(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, params, result, last_correlation);
  }
  static std::vector<AllocationEvent> Seen() { return Only<AllocationEvent>(Events()); }

  static uint32_t last_correlation;
};
uint32_t Memory::last_correlation = 100;

uint8_t Kind(wire::MemoryKind kind) { return static_cast<uint8_t>(kind); }
uint8_t Op(wire::AllocationOp op) { return static_cast<uint8_t>(op); }

TEST_F(Memory, DriverAllocationsHaveAddressBytesDeviceAndKind) {
  CUdeviceptr address = 0x1000;
  void* host = reinterpret_cast<void*>(0x2000);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 100});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged, cuMemAllocManaged_params{&address, 200, 1});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, cuMemHostAlloc_params{&host, 300, 0});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2, cuMemAllocHost_v2_params{&host, 400});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&address, 500, nullptr});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz,
         cuMemAllocFromPoolAsync_params{&address, 600, nullptr, nullptr});
  size_t pitch = 512;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2, cuMemAllocPitch_v2_params{&address, &pitch, 500, 10, 4});
  const auto seen = Seen();
  const wire::MemoryKind kinds[] = {wire::MemoryKind::kMemoryKindDevice, wire::MemoryKind::kMemoryKindManaged,
                                    wire::MemoryKind::kMemoryKindPinned, wire::MemoryKind::kMemoryKindPinned,
                                    wire::MemoryKind::kMemoryKindPool,   wire::MemoryKind::kMemoryKindPool,
                                    wire::MemoryKind::kMemoryKindDevice};
  const uint64_t bytes[] = {100, 200, 300, 400, 500, 600, 5120};
  ASSERT_EQ(seen.size(), 7u);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].memory, Kind(kinds[i])) << i;
    EXPECT_EQ(seen[i].bytes, bytes[i]) << i;
    EXPECT_EQ(seen[i].address, i == 2 || i == 3 ? 0x2000u : 0x1000u) << i;
    EXPECT_EQ(seen[i].device, 3) << i;
    EXPECT_EQ(seen[i].op, Op(wire::AllocationOp::kAllocationOpAlloc));
    EXPECT_EQ(seen[i].failed, 0);
    EXPECT_NE(seen[i].time_ns, 0u);
  }
}

TEST_F(Memory, ReleasesNameTheirAddress) {
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{0x1000});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost, cuMemFreeHost_params{reinterpret_cast<void*>(0x2000)});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, cuMemFreeAsync_params{0x3000, nullptr});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{0});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{0x4000}, CUDA_ERROR_INVALID_VALUE);
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 3u) << "nothing and failures release nothing";
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].address, 0x1000 * (i + 1));
    EXPECT_EQ(seen[i].op, Op(wire::AllocationOp::kAllocationOpFree));
  }
}

TEST_F(Memory, ARefusedAllocationIsRecordedWithWhatWasAskedFor) {
  CUdeviceptr address = 0xdead;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 1 << 30},
         CUDA_ERROR_OUT_OF_MEMORY);
  void* pointer = nullptr;
  RuntimeAround(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, cudaMalloc_v3020_params{&pointer, 1 << 30}, 2);
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].failed, 1);
  EXPECT_EQ(seen[0].address, 0u);
  EXPECT_EQ(seen[0].bytes, 1u << 30);
}

TEST_F(Memory, ACallThatFailedForAnotherReasonAskedForNothing) {
  CUdeviceptr address = 0;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 0}, CUDA_ERROR_INVALID_VALUE);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 64}, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(Seen().empty());
}

TEST_F(Memory, RegisteredHostMemoryCountsAsPinned) {
  char host[64];
  const auto address = reinterpret_cast<uint64_t>(&host[0]);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2, cuMemHostRegister_v2_params{host, sizeof(host), 0});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemHostUnregister, cuMemHostUnregister_params{host});
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaHostRegister_v4000,
       cudaHostRegister_v4000_params{host, sizeof(host), 0});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 3u);
  for (const AllocationEvent& event : seen) {
    EXPECT_EQ(event.address, address);
    EXPECT_EQ(event.memory, Kind(wire::MemoryKind::kMemoryKindPinned));
  }
  EXPECT_EQ(seen[0].bytes, sizeof(host));
  EXPECT_EQ(seen[1].op, Op(wire::AllocationOp::kAllocationOpFree));
  EXPECT_EQ(seen[2].bytes, sizeof(host));
}

TEST_F(Memory, ACallKnowsWhenItBeganAndAnAllocationItsContext) {
  CUdeviceptr address = 0x1000;
  const auto enter = [](CUpti_CallbackId cbid) {
    CUpti_CallbackData data = {};
    data.callbackSite = CUPTI_API_ENTER;
    const Guard guard;
    ASSERT_TRUE(guard);
    DispatchApi(guard.thread(), CUPTI_CB_DOMAIN_DRIVER_API, cbid, data);
  };
  const uint64_t first_ns = NowNs();
  enter(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  const uint64_t second_ns = NowNs();
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 100});
  const uint64_t third_ns = NowNs();
  enter(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2);
  const uint64_t fourth_ns = NowNs();
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{0x1000});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].context, reinterpret_cast<uint64_t>(kContext));
  EXPECT_GE(seen[0].began_ns, first_ns);
  EXPECT_LE(seen[0].began_ns, second_ns);
  EXPECT_GE(seen[0].time_ns, seen[0].began_ns);
  EXPECT_GE(seen[1].began_ns, third_ns);
  EXPECT_LE(seen[1].began_ns, fourth_ns);
  EXPECT_GE(seen[1].time_ns, seen[1].began_ns);
}

TEST_F(Memory, ArraysOfTheRuntimeCountTheirBits) {
  cudaArray_t array = reinterpret_cast<cudaArray_t>(0x5000);
  cudaMipmappedArray_t mipmaps = reinterpret_cast<cudaMipmappedArray_t>(0x6000);
  const cudaChannelFormatDesc pairs = {16, 16, 0, 0, cudaChannelFormatKindFloat};
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMallocArray_v3020,
       cudaMallocArray_v3020_params{&array, &pairs, 10, 0, 0});
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc3DArray_v3020,
       cudaMalloc3DArray_v3020_params{&array, &pairs, {10, 20, 30}, 0});
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMallocMipmappedArray_v5000,
       cudaMallocMipmappedArray_v5000_params{&mipmaps, &pairs, {16, 16, 0}, 2, 0});
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaFreeArray_v3020,
       cudaFreeArray_v3020_params{array});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].bytes, 4u * 10);
  EXPECT_EQ(seen[1].bytes, 4u * 6000);
  EXPECT_EQ(seen[2].bytes, 4u * (256 + 64));
  EXPECT_EQ(seen[2].address, 0x6000u);
  EXPECT_EQ(seen[3].op, Op(wire::AllocationOp::kAllocationOpFree));
}

TEST_F(Memory, ARuntimeCallIsCountedOnlyIfItsDriverCallWasNot) {
  void* pointer = reinterpret_cast<void*>(0x1000);
  CUdeviceptr address = 0x1000;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 100});
  RuntimeAround(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, cudaMalloc_v3020_params{&pointer, 100});
  EXPECT_EQ(Seen().size(), 1u);
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020,
       cudaMalloc_v3020_params{&pointer, 100});
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, cudaFree_v3020_params{pointer});
  EXPECT_EQ(Seen().size(), 2u);
}

TEST_F(Memory, RuntimeFormsAreUnderstood) {
  void* pointer = reinterpret_cast<void*>(0x1000);
  size_t pitch = 256;
  cudaPitchedPtr volume = {pointer, 256, 100, 5};
  const auto runtime = [](CUpti_CallbackId cbid, const auto& params) {
    Exit(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, params);
  };
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMallocPitch_v3020,
          cudaMallocPitch_v3020_params{&pointer, &pitch, 100, 4});
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc3D_v3020, cudaMalloc3D_v3020_params{&volume, {100, 5, 2}});
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMallocManaged_v6000, cudaMallocManaged_v6000_params{&pointer, 7, 1});
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMallocHost_v3020, cudaMallocHost_v3020_params{&pointer, 8});
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020, cudaHostAlloc_v3020_params{&pointer, 9, 0});
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020,
          cudaMallocAsync_v11020_params{&pointer, 10, nullptr});
  runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMallocFromPoolAsync_v11020,
          cudaMallocFromPoolAsync_v11020_params{&pointer, 11, nullptr, nullptr});
  const auto seen = Seen();
  const uint64_t bytes[] = {1024, 2560, 7, 8, 9, 10, 11};
  ASSERT_EQ(seen.size(), 7u);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].bytes, bytes[i]) << i;
    EXPECT_EQ(seen[i].address, 0x1000u) << i;
  }
}

TEST_F(Memory, AnAllocationBelongsToTheOpenRange) {
  ThreadState& thread = CurrentThread();
  thread.range_ids[0] = 77;
  thread.range_depth = 1;
  CUdeviceptr address = 0x1000;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 100});
  thread.range_depth = 0;
  EXPECT_EQ(Seen().at(0).range_id, 77u);
}

TEST_F(Memory, ArraysCountTheirElements) {
  CUarray array = reinterpret_cast<CUarray>(0x5000);
  const CUDA_ARRAY_DESCRIPTOR flat = {64, 32, CU_AD_FORMAT_FLOAT, 4};
  Driver(CUPTI_DRIVER_TRACE_CBID_cuArrayCreate_v2, cuArrayCreate_v2_params{&array, &flat});
  CUDA_ARRAY3D_DESCRIPTOR volume = {64, 32, 8, CU_AD_FORMAT_HALF, 1, 0};
  Driver(CUPTI_DRIVER_TRACE_CBID_cuArray3DCreate_v2, cuArray3DCreate_v2_params{&array, &volume});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuArrayDestroy, cuArrayDestroy_params{array});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].bytes, 64u * 32 * 16);
  EXPECT_EQ(seen[1].bytes, 64u * 32 * 8 * 2);
  EXPECT_EQ(seen[0].memory, Kind(wire::MemoryKind::kMemoryKindArray));
  EXPECT_EQ(seen[2].address, 0x5000u);
  // Levels halve every side; layers stay.
  EXPECT_EQ(ArrayBytes(volume, 2), (64u * 32 * 8 + 32u * 16 * 4) * 2);
  volume.Flags = CUDA_ARRAY3D_LAYERED;
  EXPECT_EQ(ArrayBytes(volume, 2), (64u * 32 * 8 + 32u * 16 * 8) * 2);
}

TEST_F(Memory, SparseArraysHaveNoMemory) {
  CUarray array = reinterpret_cast<CUarray>(0x5000);
  auto levels = reinterpret_cast<CUmipmappedArray>(array);
  CUDA_ARRAY3D_DESCRIPTOR shape = {64, 32, 8, CU_AD_FORMAT_HALF, 1, CUDA_ARRAY3D_SPARSE};
  Driver(CUPTI_DRIVER_TRACE_CBID_cuArray3DCreate_v2, cuArray3DCreate_v2_params{&array, &shape});
  CUDA_ARRAY3D_DESCRIPTOR deferred = shape;
  deferred.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayCreate,
         cuMipmappedArrayCreate_params{&levels, &deferred, 3});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 2u);
  for (const AllocationEvent& event : seen) {
    EXPECT_EQ(event.bytes, 0u);
    EXPECT_EQ(event.what, kImported) << "its release is expected";
  }
}

TEST_F(Memory, PhysicalMemoryIsMadeOnDevicesAndTellsWhatKeepsAndEndsIt) {
  CUmemGenericAllocationHandle handle = 0x99;
  CUmemAllocationProp properties = {};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, cuMemCreate_params{&handle, 2 << 20, &properties, 0});
  const auto made = Seen();
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].device, 1);
  EXPECT_EQ(made[0].memory, Kind(wire::MemoryKind::kMemoryKindVmm));
  EXPECT_EQ(made[0].bytes, 2u << 20);
  EXPECT_EQ(made[0].address, handle);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemMap, cuMemMap_params{0x10000000, 2 << 20, 0, handle, 0});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle,
         cuMemRetainAllocationHandle_params{&handle, nullptr});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemUnmap, cuMemUnmap_params{0x10000000, 2 << 20});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, cuMemRelease_params{handle});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, cuMemRelease_params{handle}, CUDA_ERROR_INVALID_VALUE);
  const auto told = Only<PhysicalMemoryEvent>(Events());
  ASSERT_EQ(told.size(), 4u);
  const PhysicalMemoryCall calls[] = {PhysicalMemoryCall::kMapped, PhysicalMemoryCall::kRetained,
                                      PhysicalMemoryCall::kUnmapped, PhysicalMemoryCall::kReleased};
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].call, static_cast<uint8_t>(calls[i]));
    EXPECT_EQ(told[i].handle, i == 2 ? 0 : handle);
    EXPECT_EQ(told[i].address, i % 2 == 0 ? 0x10000000u : 0u);
    EXPECT_EQ(told[i].bytes, i % 2 == 0 ? 2u << 20 : 0u);
  }
}

TEST_F(Memory, MemoryOfAPoolIsWhereThePoolIs) {
  const auto pool = [](uintptr_t number) { return reinterpret_cast<CUmemoryPool>(number * 64); };
  CUmemoryPool made[] = {pool(1), pool(2), pool(3), pool(4)};
  CUmemPoolProps properties = {};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 5};
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate, cuMemPoolCreate_params{&made[0], &properties});
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  Exit(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemPoolCreate_v11020,
       cudaMemPoolCreate_v11020_params{&made[1], reinterpret_cast<const cudaMemPoolProps*>(&properties)});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool_params{&made[2], 6});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuDeviceGetMemPool, cuDeviceGetMemPool_params{&made[3], 7});
  CUdeviceptr address = 0x1000;
  for (const uintptr_t number : {1, 2, 3, 4, 5}) {
    Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
           cuMemAllocFromPoolAsync_params{&address, 100, pool(number), nullptr});
  }
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 5u);
  const int32_t devices[] = {5, -1, 6, 7, 3};  // for an unknown pool: the context's
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].device, devices[i]) << i;
    EXPECT_EQ(seen[i].memory,
              Kind(i == 1 ? wire::MemoryKind::kMemoryKindPinned : wire::MemoryKind::kMemoryKindPool));
  }
  for (uintptr_t i = 10; i < 2000; ++i) NotePool(reinterpret_cast<void*>(i * 64), {PoolMemory::kDevice, 1});
  EXPECT_EQ(PlaceOfPool(pool(1)).device, 5);
  EXPECT_GT(LossCount(wire::LossReason::kLossDefinitionsFull), 0u);
}

TEST_F(Memory, HostMemoryOfTheVirtualMemoryApiIsNoDevices) {
  CUmemGenericAllocationHandle handle = 0x99;
  CUmemAllocationProp properties = {};
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, cuMemCreate_params{&handle, 4096, &properties, 0});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].memory, Kind(wire::MemoryKind::kMemoryKindPinned));
  EXPECT_EQ(seen[0].what, kPhysical);
}

// Memory of another process or another API has a size that nobody here asked for.
TEST_F(Memory, WhatIsImportedObtainsNothing) {
  for (const CUpti_CallbackId cbid :
       {CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle, CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle_v2,
        CUPTI_DRIVER_TRACE_CBID_cuIpcCloseMemHandle,
        CUPTI_DRIVER_TRACE_CBID_cuMemPoolImportFromShareableHandle,
        CUPTI_DRIVER_TRACE_CBID_cuImportExternalMemory, CUPTI_DRIVER_TRACE_CBID_cuDestroyExternalMemory}) {
    EXPECT_FALSE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, cbid)) << cbid;
  }
  CUdeviceptr address = 0x1000;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {};
  buffer.size = 1 << 20;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuExternalMemoryGetMappedBuffer,
         cuExternalMemoryGetMappedBuffer_params{&address, nullptr, &buffer});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemPoolImportPointer,
         cuMemPoolImportPointer_params{&address, nullptr, nullptr});
  auto levels = reinterpret_cast<CUmipmappedArray>(address);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuExternalMemoryGetMappedMipmappedArray,
         cuExternalMemoryGetMappedMipmappedArray_params{&levels, nullptr, nullptr});
  const auto seen = Seen();
  ASSERT_EQ(seen.size(), 3u) << "they are released by calls that release memory";
  for (const AllocationEvent& event : seen) {
    EXPECT_EQ(event.what, kImported);
    EXPECT_EQ(event.bytes, 0u);
    EXPECT_EQ(event.address, 0x1000u);
  }
}

TEST_F(Memory, WhatIsMappedIntoASparseArrayIsBoundToThatPartOfIt) {
  CUarrayMapInfo parts[3] = {};
  for (unsigned i = 0; i < 3; ++i) {
    parts[i].resource.array = reinterpret_cast<CUarray>(0x9000);
    parts[i].subresource.sparseLevel.extentWidth = 64 + i;
    parts[i].memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    parts[i].memHandle.memHandle = 0x55 + i;
    parts[i].deviceBitMask = 8;
  }
  parts[2].subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemMapArrayAsync, cuMemMapArrayAsync_params{parts, 3, nullptr});
  for (CUarrayMapInfo& part : parts) part.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemMapArrayAsync_ptsz, cuMemMapArrayAsync_params{parts, 3, nullptr});
  const auto told = Only<PhysicalMemoryEvent>(Events());
  ASSERT_EQ(told.size(), 6u);
  std::set<uint64_t> places;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i].call, static_cast<uint8_t>(PhysicalMemoryCall::kBound));
    EXPECT_EQ(told[i].handle, 0x9000u);
    EXPECT_EQ(told[i].address, 0x55 + i);
    EXPECT_EQ(told[i + 3].call, static_cast<uint8_t>(PhysicalMemoryCall::kUnbound));
    EXPECT_EQ(told[i + 3].handle, 0x9000u);
    EXPECT_EQ(told[i + 3].bytes, told[i].bytes);
    EXPECT_EQ(told[i + 3].device, 3);
    places.insert(told[i].bytes);
  }
  EXPECT_EQ(places.size(), 3u);
}

TEST_F(Memory, HandlesOfWhatHasNoMemoryHereAreTold) {
  CUmemGenericAllocationHandle handle = 0x99;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemImportFromShareableHandle,
         cuMemImportFromShareableHandle_params{&handle, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMulticastCreate, cuMulticastCreate_params{&handle, nullptr});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMulticastBindMem, cuMulticastBindMem_params{0x99, 4096, 0x55, 0, 8192, 0});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMulticastBindAddr,
         cuMulticastBindAddr_params{0x99, 4096, 0x7000, 8192, 0});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMulticastUnbind, cuMulticastUnbind_params{0x99, 3, 4096, 8192});
  const auto told = Only<PhysicalMemoryEvent>(Events());
  ASSERT_EQ(told.size(), 5u);
  const PhysicalMemoryCall calls[] = {PhysicalMemoryCall::kImported, PhysicalMemoryCall::kObjectMade,
                                      PhysicalMemoryCall::kBound, PhysicalMemoryCall::kBound,
                                      PhysicalMemoryCall::kUnbound};
  const uint64_t memory[] = {0, 0, 0x55, 0x7000, 0};
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].call, static_cast<uint8_t>(calls[i])) << i;
    EXPECT_EQ(told[i].handle, 0x99u) << i;
    EXPECT_EQ(told[i].address, memory[i]) << i;
    EXPECT_EQ(told[i].bytes, i < 2 ? 0u : 4096u) << i;
    EXPECT_EQ(told[i].by_address, i == 3 ? 1 : 0) << i;
  }
  EXPECT_EQ(told[4].device, 3);
}

TEST_F(Memory, WhatIsCapturedIsANodeAndNoAllocation) {
  CUdeviceptr address = 0x7000;
  {
    const Guard guard;
    guard.thread().graph_memory_graph = 0x55;  // CUPTI reported the node that the call made
  }
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&address, 300, nullptr});
  RuntimeAround(CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020,
                cudaMallocAsync_v11020_params{reinterpret_cast<void**>(&address), 300, nullptr});
  auto events = Events();
  EXPECT_TRUE(Only<AllocationEvent>(events).empty());
  auto nodes = Only<GraphMemoryNodeEvent>(events);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].graph, 0x55u);
  EXPECT_EQ(nodes[0].address, 0x7000u);
  EXPECT_EQ(nodes[0].bytes, 300u);
  EXPECT_EQ(nodes[0].device, 3);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&address, 300, nullptr});
  EXPECT_EQ(Seen().size(), 1u) << "the next one is not captured";
}

TEST_F(Memory, NodesThatAreAddedByHand) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  allocation.bytesize = 4000;
  allocation.dptr = 0x8000;
  const auto graph = reinterpret_cast<CUgraph>(0x66);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode,
         cuGraphAddMemAllocNode_params{nullptr, graph, nullptr, 0, &allocation});
  Driver(CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode,
         cuGraphAddMemFreeNode_params{nullptr, graph, nullptr, 0, 0x8000});
  CUgraphNodeParams node = {};
  node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  node.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 2};
  node.alloc.bytesize = 5000;
  node.alloc.dptr = 0x9000;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2,
         cuGraphAddNode_v2_params{nullptr, graph, nullptr, nullptr, 0, &node});
  node.type = CU_GRAPH_NODE_TYPE_EMPTY;
  Driver(CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2,
         cuGraphAddNode_v2_params{nullptr, graph, nullptr, nullptr, 0, &node});
  const auto nodes = Only<GraphMemoryNodeEvent>(Events());
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].bytes, 4000u);
  EXPECT_EQ(nodes[0].device, 1);
  EXPECT_EQ(nodes[1].op, Op(wire::AllocationOp::kAllocationOpFree));
  EXPECT_EQ(nodes[1].address, 0x8000u);
  EXPECT_EQ(nodes[2].address, 0x9000u);
  EXPECT_EQ(nodes[2].device, 2);
}

TEST_F(Memory, ContextsTellTheirDeviceWhenTheyAreMade) {
  CUcontext context = reinterpret_cast<CUcontext>(0xabc);
  EXPECT_EQ(DeviceOfContext(context), -1);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_params{&context, 6});
  EXPECT_EQ(DeviceOfContext(context), 6);
  Driver(CUPTI_DRIVER_TRACE_CBID_cuCtxCreate_v2, cuCtxCreate_v2_params{&context, 0, 7});
  EXPECT_EQ(DeviceOfContext(context), 7) << "an address that is used again";
  for (uintptr_t i = 1; i < 1000; ++i) NoteContextDevice(reinterpret_cast<void*>(i * 16), 1);
  EXPECT_EQ(DeviceOfContext(context), 7);
}

}  // namespace
}  // namespace gpuprobe::injector
