/* Obtains and releases memory in a random order that is valid: by every call, on several devices, in contexts
 * that end with memory left, by threads that hand each other what they hold. The same numbers make the same
 * calls. `random_memory SEED [THREADS [STEPS]]`; prints a sum over what the calls returned, the same with
 * and without anybody looking. */
#include "random_memory.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace {

constexpr size_t kMaxThreads = 32;
constexpr size_t kMostHeld = 40;
constexpr size_t kHuge = size_t{1} << 42;

std::atomic<Item*> mailbox[kMaxThreads];

// The bytes that were written come back: whoever looks must not be in between.
void Stamp(void* pointer, size_t bytes) { CHECK(cudaMemset(pointer, 0x5a, bytes < 64 ? bytes : 64)); }
void CheckStamp(const void* pointer, size_t bytes) {
  unsigned char found[64] = {};
  const size_t looked_at = bytes < 64 ? bytes : 64;
  CHECK(cudaMemcpy(found, pointer, looked_at, cudaMemcpyDefault));
  for (size_t i = 0; i < looked_at; ++i) EXPECT(found[i] == 0x5a);
}

void Linear(Worker& worker) {
  void* pointer = nullptr;
  size_t bytes = worker.Bytes();
  size_t pitch = 0;
  switch (worker.random.Below(5)) {
    case 0:
      CHECK(cudaMalloc(&pointer, bytes));
      break;
    case 1:
      CHECK(cudaMallocPitch(&pointer, &pitch, 1 + worker.random.Below(3000), 1 + worker.random.Below(90)));
      bytes = pitch;
      break;
    case 2: {
      cudaPitchedPtr volume{};
      CHECK(cudaMalloc3D(&volume, cudaExtent{1 + worker.random.Below(700), 1 + worker.random.Below(20),
                                             1 + worker.random.Below(9)}));
      pointer = volume.ptr;
      bytes = volume.pitch;
      break;
    }
    case 3:
      CHECK(cuMemAlloc(reinterpret_cast<CUdeviceptr*>(&pointer), bytes));
      break;
    default:
      CHECK(cuMemAllocPitch(reinterpret_cast<CUdeviceptr*>(&pointer), &pitch, 1 + worker.random.Below(3000),
                            1 + worker.random.Below(90), 8));
      bytes = pitch;
  }
  const bool stamped = worker.random.One(4);
  if (stamped) Stamp(pointer, bytes);
  worker.Hold([=](Worker& holder) {
    if (stamped) CheckStamp(pointer, bytes);
    FreeInAnyWay(holder, pointer);
  });
}

void Managed(Worker& worker) {
  void* pointer = nullptr;
  const size_t bytes = worker.Bytes();
  if (worker.random.One(2)) {
    CHECK(cudaMallocManaged(&pointer, bytes, cudaMemAttachGlobal));
  } else {
    CHECK(cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(&pointer), bytes, CU_MEM_ATTACH_GLOBAL));
  }
  worker.Hold([=](Worker& holder) {
    CHECK(holder.random.One(2) ? int{cudaFree(pointer)} : int{cuMemFree(Device(pointer))});
  });
}

void Host(Worker& worker) {
  void* pointer = nullptr;
  const size_t bytes = worker.Bytes();
  switch (worker.random.Below(4)) {
    case 0:
      CHECK(cudaMallocHost(&pointer, bytes));
      break;
    case 1:
      CHECK(cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable));
      break;
    case 2:
      CHECK(cuMemAllocHost(&pointer, bytes));
      break;
    default:
      CHECK(cuMemHostAlloc(&pointer, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
  }
  worker.Hold([=](Worker& holder) {
    CHECK(holder.random.One(2) ? int{cudaFreeHost(pointer)} : int{cuMemFreeHost(pointer)});
  });
}

void Registered(Worker& worker) {
  const size_t pages = 1 + worker.random.Below(9);
  const std::shared_ptr<void> memory(std::aligned_alloc(4096, pages * 4096), std::free);
  if (worker.random.One(2)) {
    CHECK(cudaHostRegister(memory.get(), pages * 4096, cudaHostRegisterDefault));
  } else {
    CHECK(cuMemHostRegister(memory.get(), pages * 4096, 0));
  }
  if (worker.random.One(4))
    worker.Note(cudaHostRegister(memory.get(), pages * 4096, cudaHostRegisterDefault));
  worker.Hold([memory](Worker& holder) {
    CHECK(holder.random.One(2) ? int{cudaHostUnregister(memory.get())}
                               : int{cuMemHostUnregister(memory.get())});
  });
}

void Array(Worker& worker) {
  const cudaChannelFormatDesc halves = cudaCreateChannelDesc(16, 16, 0, 0, cudaChannelFormatKindUnsigned);
  const size_t width = 16 + worker.random.Below(600);
  const size_t height = 16 + worker.random.Below(300);
  const unsigned levels = 1 + static_cast<unsigned>(worker.random.Below(4));
  cudaArray_t array = nullptr;
  cudaMipmappedArray_t mipmaps = nullptr;
  switch (worker.random.Below(6)) {
    case 0:
      CHECK(cudaMallocArray(&array, &halves, width, worker.random.One(3) ? 0 : height, 0));
      break;
    case 1:
      CHECK(cudaMalloc3DArray(&array, &halves, cudaExtent{width, height, 1 + worker.random.Below(5)}, 0));
      break;
    case 2: {
      const CUDA_ARRAY_DESCRIPTOR flat{width, height, CU_AD_FORMAT_FLOAT, 2};
      CHECK(cuArrayCreate(reinterpret_cast<CUarray*>(&array), &flat));
      break;
    }
    case 3: {
      const unsigned sparse = worker.random.One(3) ? CUDA_ARRAY3D_SPARSE : 0;
      const CUDA_ARRAY3D_DESCRIPTOR deep{
          width, height, sparse != 0 ? 0 : 3 * worker.random.Below(2), CU_AD_FORMAT_UNSIGNED_INT8, 4, sparse};
      CHECK(cuArray3DCreate(reinterpret_cast<CUarray*>(&array), &deep));
      break;
    }
    case 4: {
      const unsigned deferred = worker.random.One(3) ? cudaArrayDeferredMapping : 0;
      CHECK(cudaMallocMipmappedArray(&mipmaps, &halves, cudaExtent{width, height, 0}, levels, deferred));
      break;
    }
    default: {
      const CUDA_ARRAY3D_DESCRIPTOR layers{
          width, height, 2, CU_AD_FORMAT_SIGNED_INT16, 1, CUDA_ARRAY3D_LAYERED};
      CHECK(cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(&mipmaps), &layers, levels));
    }
  }
  worker.Hold([=](Worker& holder) {
    const bool by_driver = holder.random.One(2);
    if (array != nullptr) {
      CHECK(by_driver ? int{cuArrayDestroy(reinterpret_cast<CUarray>(array))} : int{cudaFreeArray(array)});
    } else {
      CHECK(by_driver ? int{cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(mipmaps))}
                      : int{cudaFreeMipmappedArray(mipmaps)});
    }
  });
}

// Uses the current pool or a named one, on any device.
void Ordered(Worker& worker) {
  void* pointer = nullptr;
  const size_t bytes = worker.Bytes();
  const auto where = worker.random.Below(static_cast<size_t>(worker.devices));
  const std::vector<cudaMemPool_t>& pools = worker.pools[where];
  cudaMemPool_t pool = pools[worker.random.Below(pools.size())];
  switch (worker.random.Below(4)) {
    case 0:
      CHECK(cudaMallocAsync(&pointer, bytes, worker.Stream()));
      break;
    case 1:
      CHECK(cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(&pointer), bytes, worker.Stream()));
      break;
    case 2:
      CHECK(cudaMallocFromPoolAsync(&pointer, bytes, pool, worker.Stream()));
      break;
    default:
      CHECK(cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(&pointer), bytes, pool, worker.Stream()));
  }
  worker.Hold([=](Worker& holder) { FreeInAnyWay(holder, pointer); });
}

// A pool of one's own: in the host, managed, exported; maybe gone before what it gave.
void OwnPool(Worker& worker) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, worker.device};
  const size_t kind = worker.random.Below(5);
  if (kind == 0) properties.location = {cudaMemLocationTypeHost, 0};
  if (kind == 1) properties.allocType = cudaMemAllocationTypeManaged;
  if (kind == 2) properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  cudaMemPool_t pool = nullptr;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  if (worker.random.One(2)) {
    uint64_t threshold = worker.random.Below(32) * kMiB;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  }
  void* pieces[3] = {};
  for (void*& piece : pieces) {
    CHECK(cudaMallocFromPoolAsync(&piece, worker.Bytes(), pool, worker.Stream()));
    if (worker.random.One(3)) {
      CHECK(kind == 0 || worker.random.One(2) ? cudaFree(piece) : cudaFreeAsync(piece, worker.Stream()));
      continue;
    }
    worker.Hold([piece, kind](Worker& holder) {
      CHECK(kind == 0 || holder.random.One(2) ? cudaFree(piece) : cudaFreeAsync(piece, holder.Stream()));
    });
  }
  if (kind == 2) {
    cudaMemPoolPtrExportData data{};
    void* shared = nullptr;
    cudaMemPool_t imported = nullptr;
    int file = -1;
    void* there = nullptr;
    CHECK(cudaMallocFromPoolAsync(&shared, 5000, pool, worker.Stream()));
    CHECK(cudaMemPoolExportToShareableHandle(&file, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaMemPoolImportFromShareableHandle(&imported, Descriptor(file),
                                               cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaMemPoolExportPointer(&data, shared));
    CHECK(cudaMemPoolImportPointer(&there, imported, &data));
    EXPECT(there != shared);
    CHECK(worker.random.One(2) ? cudaFree(there) : cudaFreeAsync(there, worker.Stream()));
    CHECK(cudaFree(shared));
    CHECK(cudaMemPoolDestroy(imported));
    close(file);
  }
  if (worker.random.One(2)) CHECK(cudaMemPoolTrimTo(pool, worker.random.Below(16) * kMiB));
  if (worker.random.One(2)) {
    CHECK(cudaMemPoolDestroy(pool));
  } else {
    worker.Hold(worker.device, nullptr, [pool](Worker&) { CHECK(cudaMemPoolDestroy(pool)); });
  }
}

// Other APIs' memory: none of ours, though a call that releases memory ends it.
void External(Worker& worker) {
  const int file = memfd_create("external", 0);
  EXPECT(file >= 0 && ftruncate(file, 3 << 20) == 0);
  cudaExternalMemoryHandleDesc what{};
  what.type = cudaExternalMemoryHandleTypeOpaqueFd;
  what.handle.fd = file;
  what.size = 3 << 20;
  cudaExternalMemory_t memory = nullptr;
  CHECK(cudaImportExternalMemory(&memory, &what));
  cudaExternalMemoryBufferDesc buffer{};
  buffer.size = 1 << 20;
  void* pointer = nullptr;
  CHECK(cudaExternalMemoryGetMappedBuffer(&pointer, memory, &buffer));
  worker.Hold([=](Worker& holder) {
    CHECK(holder.random.One(2) ? int{cudaFree(pointer)} : int{cuMemFree(Device(pointer))});
    CHECK(cudaDestroyExternalMemory(memory));
  });
}

// More than there is, nothing at all, and what cannot be: no call of these obtains anything.
void InVain(Worker& worker) {
  void* pointer = nullptr;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, worker.device};
  cudaPitchedPtr volume{};
  size_t pitch = 0;
  int on_stack = 0;
  switch (worker.random.Below(14)) {
    case 0:
      return worker.Note(cudaMalloc(&pointer, kHuge));
    case 1:
      return worker.Note(cudaMallocManaged(&pointer, kHuge, cudaMemAttachGlobal));
    case 2:
      return worker.Note(cudaMallocAsync(&pointer, kHuge, worker.Stream()));
    case 3:
      return worker.Note(cuMemCreate(&handle, kHuge, &properties, 0));
    case 4:
      return worker.Note(cudaMalloc3D(&volume, cudaExtent{1 << 14, 1 << 14, 1 << 14}));
    case 5:
      return worker.Note(cuMemAllocPitch(&address, &pitch, 100'001, 1 << 26, 4));
    case 6:
      return worker.Note(cudaMalloc(&pointer, 0));
    case 7:
      worker.Note(cudaFree(nullptr));
      return worker.Note(cudaFreeHost(nullptr));
    case 8:
      worker.Note(cudaFreeAsync(nullptr, worker.Stream()));
      return worker.Note(cuMemFree(0));
    case 9:
      return worker.Note(cudaFree(&on_stack));
    case 10:
      return worker.Note(cudaHostUnregister(&on_stack));
    case 11:
      return worker.Note(cuMemRelease(0xabcdef));
    case 12:
      return worker.Note(cuMemUnmap(2 * kMiB, 2 * kMiB));
    default:
      return worker.Note(cudaFreeArray(nullptr));
  }
}

void PoolUpkeep(Worker& worker) {
  cudaMemPool_t pool = worker.pools[static_cast<size_t>(worker.device)].front();
  if (worker.random.One(2)) {
    CHECK(cudaMemPoolTrimTo(pool, worker.random.Below(20) * kMiB));
  } else {
    uint64_t threshold = worker.random.One(2) ? UINT64_MAX : worker.random.Below(64) * kMiB;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  }
  if (worker.random.One(3)) CHECK(cudaStreamSynchronize(worker.Stream()));
  if (worker.random.One(4)) CHECK(cudaDeviceGraphMemTrim(worker.device));
}

void SwitchDevice(Worker& worker) {
  worker.device = static_cast<int>(worker.random.Below(static_cast<size_t>(worker.devices)));
  CHECK(cudaSetDevice(worker.device));
}

// The child is none of the driver's, and says so by its end.
void Fork(Worker& worker) {
  const pid_t child = fork();
  if (child == 0) {
    void* pointer = nullptr;
    nvtxRangePushA("in the child");
    const bool refused = cudaMalloc(&pointer, 100) != cudaSuccess;
    nvtxRangePop();
    _exit(refused ? 7 : 1);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  worker.Note(status);
}

constexpr void (*kMakers[])(Worker&) = {
    Linear,        Linear,    Managed,   Host,     Registered,   Array,
    Ordered,       Ordered,   OwnPool,   External, MakePhysical, MakeSeveralPhysical,
    MakeMulticast, MakeGraph, MakeGraph, InVain,   PoolUpkeep,   SwitchDevice};
constexpr const char* kRanges[] = {"forward", "backward", "optimizer"};

void Step(Worker& worker) {
  const bool range = worker.random.One(5);
  if (range) nvtxRangePushA(kRanges[worker.random.Below(3)]);
  if (worker.items.size() >= kMostHeld || (worker.items.size() > kMostHeld / 4 && worker.random.One(2))) {
    const size_t which = worker.random.Below(worker.items.size());
    const ItemPtr item = std::move(worker.items[which]);
    worker.items[which] = std::move(worker.items.back());
    worker.items.pop_back();
    item->release(worker);
  } else {
    kMakers[worker.random.Below(std::size(kMakers))](worker);
  }
  if (range) nvtxRangePop();
}

void HandOn(Worker& worker, size_t threads) {
  if (worker.items.empty()) return;
  const size_t which = worker.random.Below(worker.items.size());
  ItemPtr got(mailbox[worker.random.Below(threads)].exchange(worker.items[which].release()));
  if (got != nullptr) {
    worker.items[which] = std::move(got);
  } else {
    worker.items.erase(worker.items.begin() + static_cast<ptrdiff_t>(which));
  }
}

void MakeStreams(Worker& worker, int device) {
  worker.streams[static_cast<size_t>(device)] = {nullptr, cudaStreamPerThread};
  for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, flags));
    worker.streams[static_cast<size_t>(device)].push_back(stream);
  }
}

void Prepare(Worker& worker) {
  worker.streams.resize(static_cast<size_t>(worker.devices));
  worker.pools.resize(static_cast<size_t>(worker.devices));
  for (int device = 0; device < worker.devices; ++device) {
    CHECK(cudaSetDevice(device));
    MakeStreams(worker, device);
    cudaMemPool_t pool = nullptr;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
    worker.pools[static_cast<size_t>(device)].push_back(pool);
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, device};
    CHECK(cudaMemPoolCreate(&pool, &properties));
    worker.pools[static_cast<size_t>(device)].push_back(pool);
    if (worker.self == 0 && worker.random.One(3)) CHECK(cudaDeviceSetMemPool(device, pool));
  }
  worker.device = 0;
  CHECK(cudaSetDevice(0));
}

void Forget(Worker& worker, CUcontext context) {
  std::vector<ItemPtr> kept;
  for (ItemPtr& item : worker.items) {
    if (item->context != context) kept.push_back(std::move(item));
  }
  worker.items = std::move(kept);
}

// What is left in it ends with it; what never was in it stays.
void OwnContext(Worker& worker) {
  SwitchDevice(worker);
  const CUcontext before = worker.Context();
  CUcontext context = nullptr;
  CHECK(cuCtxCreate(&context, nullptr, 0, worker.device));
  constexpr void (*kHere[])(Worker&) = {Linear, Managed, Host, Registered, Array, MakePhysical, InVain};
  for (size_t i = worker.random.Below(12); i > 0; --i) kHere[worker.random.Below(std::size(kHere))](worker);
  if (worker.random.One(2)) {
    CHECK(cuCtxSetCurrent(before));
    for (size_t i = worker.random.Below(6); i > 0; --i) Step(worker);
    SwitchDevice(worker);
    CHECK(cuCtxDestroy(context));
  } else {
    CHECK(cuCtxDestroy(context));
    CHECK(cudaSetDevice(worker.device));
  }
  Forget(worker, context);
}

void ResetDevice(Worker& worker) {
  SwitchDevice(worker);
  const CUcontext context = worker.Context();
  if (worker.random.One(2)) {
    CHECK(cudaDeviceReset());
  } else {
    CHECK(cuDevicePrimaryCtxReset(worker.device));
  }
  Forget(worker, context);
  CHECK(cudaSetDevice(worker.device));
  MakeStreams(worker, worker.device);
}

void Finish(Worker& worker) {
  while (!worker.items.empty()) {
    const ItemPtr item = std::move(worker.items.back());
    worker.items.pop_back();
    item->release(worker);
  }
  for (int device = 0; device < worker.devices; ++device) {
    CHECK(cudaSetDevice(device));
    for (const size_t own : {2, 3}) {
      cudaStream_t stream = worker.streams[static_cast<size_t>(device)][own];
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaStreamDestroy(stream));
    }
    CHECK(cudaDeviceSynchronize());
  }
}

void Work(Worker& worker, size_t threads, size_t steps, pthread_barrier_t* meet) {
  Prepare(worker);
  pthread_barrier_wait(meet);
  for (size_t step = 0; step < steps; ++step) {
    Step(worker);
    if (threads > 1 && worker.random.One(3)) HandOn(worker, threads);
    if (worker.random.One(100)) OwnContext(worker);
    if (threads > 1) continue;
    if (worker.random.One(300)) ResetDevice(worker);
    if (worker.random.One(400)) Fork(worker);
  }
  pthread_barrier_wait(meet);
  if (ItemPtr left(mailbox[worker.self].exchange(nullptr)); left != nullptr)
    worker.items.push_back(std::move(left));
  const bool leave = threads == 1 && worker.random.One(4);  // to the end of the process
  if (!leave) Finish(worker);
  for (ItemPtr& item : worker.items) (void)item.release();
}

}  // namespace

void FreeInOrder(Worker& worker, void* pointer) {
  const bool by_driver = worker.random.One(2);
  cudaStream_t stream = worker.Stream();
  CHECK(by_driver ? int{cuMemFreeAsync(Device(pointer), stream)} : int{cudaFreeAsync(pointer, stream)});
}

void FreeInAnyWay(Worker& worker, void* pointer) {
  if (worker.random.One(2)) return FreeInOrder(worker, pointer);
  CHECK(worker.random.One(2) ? int{cudaFree(pointer)} : int{cuMemFree(Device(pointer))});
}

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const size_t threads = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  const size_t steps = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 300;
  int devices = 0;
  EXPECT(threads > 0 && threads <= kMaxThreads);
  CHECK(cudaGetDeviceCount(&devices));
  pthread_barrier_t meet;
  pthread_barrier_init(&meet, nullptr, static_cast<unsigned>(threads));
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> others;
  for (size_t i = 0; i < threads; ++i)
    workers.push_back(std::make_unique<Worker>(i, seed * 1000 + i, devices));
  for (size_t i = 1; i < threads; ++i)
    others.emplace_back([&, i] { Work(*workers[i], threads, steps, &meet); });
  Work(*workers[0], threads, steps, &meet);
  for (std::thread& other : others) other.join();
  // With several threads, each one's work depends on what the others left, so there is no stable checksum.
  std::printf("%" PRIx64 "\n", threads == 1 ? workers[0]->checksum : 0);
  return 0;
}
