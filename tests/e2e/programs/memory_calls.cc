/* Obtains and releases memory by every call of the runtime and the driver that the simulated node has, in
 * annotated ranges, so that what was captured can be held against the node's own ledger. `memory_calls
 * refused` asks for more than there is. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void Check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s returned %d\n", what, result);
  std::exit(1);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}
#define EXPECT(condition) Expect(condition, #condition)

// The per-thread-default-stream twins are called by name: a source file is compiled for one of the two.
template <typename Function>
Function* Twin(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  Expect(found != nullptr, name);
  return reinterpret_cast<Function*>(found);
}

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
  std::vector<char> registered(8 * 4096);
  std::vector<char> by_driver(5 * 4096);
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
  properties.location = {cudaMemLocationTypeDevice, {0}};
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

}  // namespace

int main(int argc, char** argv) {
  CHECK(cudaSetDevice(0));
  if (argc > 1 && std::strcmp(argv[1], "refused") == 0) {
    Refused();
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
                             {"arrays", Arrays},
                             {"virtual memory", VirtualMemory},
                             {"contexts", Contexts}};
  for (const Part& part : kParts) {
    nvtxRangePushA(part.name);
    part.run();
    nvtxRangePop();
  }
  return 0;
}
