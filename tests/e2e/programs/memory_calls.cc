/* Obtains and releases memory by every call of the runtime and the driver that the simulated node has, in
 * annotated ranges, so that what was captured can be held against the node's own ledger. With an argument it
 * does something else: memory_situations.h. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <vector>

#include "memory_checks.h"
#include "memory_graphs.h"
#include "memory_places.h"
#include "memory_situations.h"

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

struct Part {
  const char* name;
  void (*run)();
};

// What runs alone if it is named.
constexpr Part kSituations[] = {{"refused", Refused},
                                {"pools", PoolLevels},
                                {"small", Small},
                                {"devices", Devices},
                                {"handles", ManyHandles}};

}  // namespace

int main(int argc, char** argv) {
  CHECK(cudaSetDevice(0));
  for (const Part& situation : kSituations) {
    if (argc > 1 && std::strcmp(argv[1], situation.name) == 0) {
      situation.run();
      return 0;
    }
  }
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
