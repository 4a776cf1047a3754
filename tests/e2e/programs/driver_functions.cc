// Calls those functions of the driver that may be slow: each once, or creates and destroys events.
//
// usage: driver_functions          each function; two devices are needed
//        driver_functions EVENTS   prints the nanoseconds that an event took

#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "memory_checks.h"

namespace {

constexpr char kModule[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry a_kernel()\n{\n  ret;\n}\n";

void Modules() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUlibrary library = nullptr;
  CHECK(cuModuleLoadData(&module, kModule));
  CHECK(cuModuleGetFunction(&function, module, "a_kernel"));
  CHECK(cuModuleUnload(module));
  CHECK(cuModuleLoadDataEx(&module, kModule, 0, nullptr, nullptr));
  CHECK(cuModuleUnload(module));
  CHECK(cuLibraryLoadData(&library, kModule, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cuLibraryUnload(library));
  EXPECT(cuModuleLoad(&module, "/there/is/no/such/file") != CUDA_SUCCESS);
}

void Graphs(CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec whole = nullptr;
  CUgraphNode node = nullptr;
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  CHECK(cuGraphInstantiateWithFlags(&whole, graph, 0));
  CUgraphExecUpdateResultInfo info{};
  CHECK(cuGraphExecUpdate(whole, graph, &info));
  CHECK(cuGraphUpload(whole, stream));
  CHECK(cuGraphExecDestroy(whole));
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  CHECK(cuGraphInstantiateWithParams(&whole, graph, &how));
  CHECK(cuGraphExecDestroy(whole));
  CHECK(cuGraphDestroy(graph));
}

void Memory(CUstream stream) {
  constexpr size_t kBytes = 1 << 20;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  void* host = nullptr;
  CHECK(cuMemAlloc(&address, kBytes));
  CHECK(cuMemFree(address));
  CHECK(cuMemAllocPitch(&address, &pitch, 1000, 10, 4));
  CHECK(cuMemFree(address));
  CHECK(cuMemAllocManaged(&address, kBytes, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuMemFree(address));
  CHECK(cuMemAllocAsync(&address, kBytes, stream));
  CHECK(cuMemFreeAsync(address, stream));
  CHECK(Twin<decltype(cuMemAllocAsync)>("cuMemAllocAsync_ptsz")(&address, kBytes, nullptr));
  CHECK(Twin<decltype(cuMemFreeAsync)>("cuMemFreeAsync_ptsz")(address, nullptr));
  CUmemoryPool pool = nullptr;
  CUmemPoolProps place{};
  place.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  place.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CHECK(cuMemPoolCreate(&pool, &place));
  CHECK(cuMemAllocFromPoolAsync(&address, kBytes, pool, stream));
  CHECK(cuMemFreeAsync(address, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolTrimTo(pool, 0));
  CHECK(cuMemPoolDestroy(pool));
  CHECK(cuMemHostAlloc(&host, kBytes, 0));
  CHECK(cuMemFreeHost(host));
  CHECK(cuMemAllocHost(&host, kBytes));
  CHECK(cuMemFreeHost(host));
  std::vector<char> pages(size_t{16} * 4096);
  CHECK(cuMemHostRegister(pages.data(), pages.size(), 0));
  CHECK(cuMemHostUnregister(pages.data()));
}

void MappedMemory() {
  CUmemAllocationProp place{};
  place.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  place.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t bytes = 0;
  CHECK(cuMemGetAllocationGranularity(&bytes, &place, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK(cuMemCreate(&memory, bytes, &place, 0));
  CHECK(cuMemMap(address, bytes, 0, memory, 0));
  CUmemAccessDesc access{};
  access.location = place.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, bytes, &access, 1));
  CHECK(cuMemUnmap(address, bytes));
  CHECK(cuMemRelease(memory));
  CHECK(cuMemAddressFree(address, bytes));
}

void Others() {
  CUdevice second = 0;
  CUcontext context = nullptr;
  CUcontext own = nullptr;
  CHECK(cuDeviceGet(&second, 1));
  CHECK(cuDevicePrimaryCtxRetain(&context, second));
  CHECK(cuCtxEnablePeerAccess(context, 0));
  CHECK(cuCtxDisablePeerAccess(context));
  CHECK(cuDevicePrimaryCtxRelease(second));
  CHECK(cuCtxCreate(&own, nullptr, 0, second));
  CHECK(cuCtxDestroy(own));
}

void EachFunction() {
  CUstream stream = nullptr;
  CUstream urgent = nullptr;
  CUevent event = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, 0));
  CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  Modules();
  Graphs(stream);
  Memory(stream);
  MappedMemory();
  CHECK(cuEventDestroy(event));
  CHECK(cuStreamDestroy(urgent));
  CHECK(cuStreamDestroy(stream));
  Others();
}

void Events(int count) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < count; ++i) {
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventDestroy(event));
  }
  const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  std::printf("%.0f\n", static_cast<double>(spent.count()) / count);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  if (argc > 1) {
    Events(std::atoi(argv[1]));
  } else {
    EachFunction();
  }
  return 0;
}
