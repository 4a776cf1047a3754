// Allocations and releases, from CUPTI's API callbacks at exit.
//
// The driver's functions are authoritative; a runtime function is used only if its driver call made no
// callback, which their shared correlation id shows. An allocation that failed with out of memory is recorded
// with the requested size; one that failed otherwise (a bad argument, a broken context) is not. Registered
// host memory is page-locked memory like any other: it counts from register to unregister.
#include "injector/capture/memory/part.h"

#include <cupti.h>

#include <cstddef>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/context_devices.h"
#include "injector/capture/cupti/graph_calls.h"
#include "injector/capture/memory/array_calls.h"
#include "injector/capture/memory/calls.h"
#include "injector/capture/memory/physical_calls.h"
#include "injector/capture/memory/pool_devices.h"
#include "injector/capture/memory/pytorch.h"
#include "injector/core/event_ring.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector {

namespace {

using memory_calls::ArgumentsOf;
using memory_calls::FreeArguments;
using memory_calls::ReportAllocation;
using memory_calls::ReportRelease;
using memory_calls::Succeeded;

using Recorder = void (*)(ThreadState&, const CUpti_CallbackData&) noexcept;

// The first arguments of cuMemAlloc, cuMemHostAlloc, cudaMalloc ...: where the address goes, and how many
// bytes.
struct AllocationArguments {
  const uint64_t* address;
  size_t bytes;
};
#define SAME_START(params, pointer, size)         \
  static_assert(offsetof(params, pointer) == 0 && \
                offsetof(params, size) == offsetof(AllocationArguments, bytes))
SAME_START(cuMemAlloc_v2_params, dptr, bytesize);
SAME_START(cuMemAllocManaged_params, dptr, bytesize);
SAME_START(cuMemHostAlloc_params, pp, bytesize);
SAME_START(cuMemAllocHost_v2_params, pp, bytesize);
SAME_START(cuMemAllocAsync_params, dptr, bytesize);
SAME_START(cuMemAllocFromPoolAsync_params, dptr, bytesize);
SAME_START(cudaMalloc_v3020_params, devPtr, size);
SAME_START(cudaMallocManaged_v6000_params, devPtr, size);
SAME_START(cudaHostAlloc_v3020_params, pHost, size);
SAME_START(cudaMallocHost_v3020_params, ptr, size);
SAME_START(cudaMallocAsync_v11020_params, devPtr, size);
SAME_START(cudaMallocFromPoolAsync_v11020_params, ptr, size);
SAME_START(cuMemHostRegister_v2_params, p, bytesize);
SAME_START(cudaHostRegister_v4000_params, ptr, size);
#undef SAME_START

// The arguments of cuMemAllocPitch and cudaMallocPitch.
struct PitchArguments {
  const uint64_t* address;
  const size_t* pitch;
  size_t width;
  size_t height;
};
static_assert(offsetof(cuMemAllocPitch_v2_params, Height) == offsetof(PitchArguments, height));
static_assert(offsetof(cudaMallocPitch_v3020_params, height) == offsetof(PitchArguments, height));

// Reports memory of the current context; the call stored its address in `*address`.
void ReportInContext(ThreadState& thread, const CUpti_CallbackData& data, wire::MemoryKind kind,
                     const uint64_t* address, uint64_t bytes) noexcept {
  const bool known = Succeeded(data) && address != nullptr;
  ReportAllocation(thread, data,
                   {kind, known ? *address : 0, bytes, DeviceOfContext(data.context), data.context});
}

// A graph's node that allocates, or releases what is at the address.
void ReportGraphNode(ThreadState& thread, uint64_t graph, wire::AllocationOp op, uint64_t address,
                     uint64_t bytes, int32_t device) noexcept {
  if (op == wire::AllocationOp::kAllocationOpAlloc) any_graph_memory.store(true, std::memory_order_relaxed);
  GraphMemoryNodeEvent event{};
  event.time_ns = Stamp();
  event.graph = graph;
  event.address = address;
  event.bytes = bytes;
  event.device = device;
  event.op = static_cast<uint8_t>(op);
  Emit(thread, event);
}

// In a captured stream the call allocates and releases nothing, but makes a node of the graph returned. 0:
// not captured.
uint64_t CapturedInto(ThreadState& thread) noexcept {
  const uint64_t graph = thread.graph_memory_graph;
  thread.graph_memory_graph = 0;
  return graph;
}

template <wire::MemoryKind kMemory>
void Allocated(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<AllocationArguments>(data);
  ReportInContext(thread, data, kMemory, arguments.address, arguments.bytes);
}

// Memory of a pool is where the pool is. With an unknown pool, or none, it is on the current device.
void AllocatedInOrder(ThreadState& thread, const CUpti_CallbackData& data, const void* pool) noexcept {
  const auto& arguments = ArgumentsOf<AllocationArguments>(data);
  const uint64_t graph = CapturedInto(thread);
  const bool known = Succeeded(data) && arguments.address != nullptr;
  const PoolPlace place = PlaceOfPool(pool);
  const bool in_host = place.memory == PoolMemory::kHost;
  const int32_t device = place.device >= 0 || in_host ? place.device : DeviceOfContext(data.context);
  if (graph != 0) {
    if (known) {
      ReportGraphNode(thread, graph, wire::AllocationOp::kAllocationOpAlloc, *arguments.address,
                      arguments.bytes, device);
    }
    return;
  }
  const auto kind = in_host                                ? wire::MemoryKind::kMemoryKindPinned
                    : place.memory == PoolMemory::kManaged ? wire::MemoryKind::kMemoryKindManaged
                                                           : wire::MemoryKind::kMemoryKindPool;
  ReportAllocation(thread, data,
                   {kind, known ? *arguments.address : 0, arguments.bytes, device, data.context});
}

void AllocatedFromCurrentPool(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  AllocatedInOrder(thread, data, nullptr);
}

static_assert(offsetof(cuMemAllocFromPoolAsync_params, pool) ==
              offsetof(cudaMallocFromPoolAsync_v11020_params, memPool));
void AllocatedFromPool(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  AllocatedInOrder(thread, data, ArgumentsOf<cuMemAllocFromPoolAsync_params>(data).pool);
}

// Memory allocated by another process or API: not counted, but released by an ordinary release call.
void Imported(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const uint64_t* address = ArgumentsOf<AllocationArguments>(data).address;
  if (!Succeeded(data) || address == nullptr) return;
  ReportAllocation(thread, data,
                   {wire::MemoryKind::kMemoryKindDevice, *address, 0, DeviceOfContext(data.context),
                    data.context, kImported});
}
static_assert(offsetof(cuMemPoolImportPointer_params, ptr_out) == 0 &&
              offsetof(cuExternalMemoryGetMappedBuffer_params, devPtr) == 0 &&
              offsetof(cuExternalMemoryGetMappedMipmappedArray_params, mipmap) == 0 &&
              offsetof(cudaMemPoolImportPointer_v11020_params, ptr) == 0 &&
              offsetof(cudaExternalMemoryGetMappedBuffer_v10000_params, devPtr) == 0 &&
              offsetof(cudaExternalMemoryGetMappedMipmappedArray_v10000_params, mipmap) == 0);

void Registered(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<AllocationArguments>(data);
  const auto address = reinterpret_cast<uint64_t>(arguments.address);
  ReportInContext(thread, data, wire::MemoryKind::kMemoryKindPinned, &address, arguments.bytes);
}

void AllocatedPitch(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<PitchArguments>(data);
  const bool padded = Succeeded(data) && arguments.pitch != nullptr;
  ReportInContext(thread, data, wire::MemoryKind::kMemoryKindDevice, arguments.address,
                  (padded ? *arguments.pitch : arguments.width) * arguments.height);
}

void Allocated3D(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cudaMalloc3D_v3020_params>(data);
  const cudaPitchedPtr* result = arguments.pitchedDevPtr;
  const bool padded = Succeeded(data) && result != nullptr;
  const auto address = padded ? reinterpret_cast<uint64_t>(result->ptr) : 0;
  ReportInContext(
      thread, data, wire::MemoryKind::kMemoryKindDevice, &address,
      (padded ? result->pitch : arguments.extent.width) * arguments.extent.height * arguments.extent.depth);
}

template <wire::MemoryKind kMemory>
void Freed(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const uint64_t address = ArgumentsOf<FreeArguments>(data).address;
  if (address == 0 || !Succeeded(data)) return;
  // The consumer's ledger knows the allocation and its kind: cuMemFree takes managed and pool memory too.
  ReportRelease(thread, {kMemory, address, 0, DeviceOfContext(data.context), data.context});
}

void FreedInOrder(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const uint64_t graph = CapturedInto(thread);
  if (graph == 0) return Freed<wire::MemoryKind::kMemoryKindPool>(thread, data);
  if (!Succeeded(data)) return;
  ReportGraphNode(thread, graph, wire::AllocationOp::kAllocationOpFree,
                  ArgumentsOf<FreeArguments>(data).address, 0, -1);
}

int32_t DeviceOf(const CUmemPoolProps& properties) noexcept {
  return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : -1;
}

PoolPlace PlaceAt(const CUmemLocation& location, CUmemAllocationType type) noexcept {
  constexpr int kManagedType = 2;  // CU_MEM_ALLOCATION_TYPE_MANAGED, since CUDA 13.0
  const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool managed = int{type} == kManagedType;
  const PoolMemory memory = managed     ? PoolMemory::kManaged
                            : on_device ? PoolMemory::kDevice
                                        : PoolMemory::kHost;
  return {memory, on_device ? location.id : -1};
}

// Both APIs describe pools alike.
static_assert(offsetof(cudaMemPoolProps, location) == offsetof(CUmemPoolProps, location) &&
              int{cudaMemLocationTypeDevice} == int{CU_MEM_LOCATION_TYPE_DEVICE});
void CreatedPool(ThreadState&, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemPoolCreate_params>(data);
  if (Succeeded(data) && arguments.pool != nullptr && arguments.poolProps != nullptr)
    NotePool(*arguments.pool, PlaceAt(arguments.poolProps->location, arguments.poolProps->allocType));
}

// The default pool or the current one: asked for before it can be named.
static_assert(offsetof(cuDeviceGetMemPool_params, dev) == offsetof(cuDeviceGetDefaultMemPool_params, dev) &&
              offsetof(cudaDeviceGetMemPool_v11020_params, device) ==
                  offsetof(cuDeviceGetDefaultMemPool_params, dev) &&
              offsetof(cudaDeviceGetDefaultMemPool_v11020_params, device) ==
                  offsetof(cuDeviceGetDefaultMemPool_params, dev));
void GotPool(ThreadState&, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuDeviceGetDefaultMemPool_params>(data);
  if (Succeeded(data) && arguments.pool_out != nullptr)
    NotePool(*arguments.pool_out, {PoolMemory::kDevice, arguments.dev});
}

#if CUDA_VERSION >= 13000
void GotPoolAt(ThreadState&, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemGetDefaultMemPool_params>(data);
  if (Succeeded(data) && arguments.pool_out != nullptr && arguments.location != nullptr)
    NotePool(*arguments.pool_out, PlaceAt(*arguments.location, arguments.type));
}
#endif

void AddedAllocationNode(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  CapturedInto(thread);
  const auto& arguments = ArgumentsOf<cuGraphAddMemAllocNode_params>(data);
  if (!Succeeded(data) || arguments.nodeParams == nullptr) return;
  ReportGraphNode(thread, reinterpret_cast<uint64_t>(arguments.hGraph),
                  wire::AllocationOp::kAllocationOpAlloc, arguments.nodeParams->dptr,
                  arguments.nodeParams->bytesize, DeviceOf(arguments.nodeParams->poolProps));
}

void AddedReleaseNode(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  CapturedInto(thread);
  const auto& arguments = ArgumentsOf<cuGraphAddMemFreeNode_params>(data);
  if (!Succeeded(data)) return;
  ReportGraphNode(thread, reinterpret_cast<uint64_t>(arguments.hGraph), wire::AllocationOp::kAllocationOpFree,
                  arguments.dptr, 0, -1);
}

// cuGraphAddNode and its second version.
#if CUDA_VERSION >= 12020
template <typename Arguments>
void AddedNode(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  CapturedInto(thread);
  const auto& arguments = ArgumentsOf<Arguments>(data);
  if (!Succeeded(data) || arguments.nodeParams == nullptr) return;
  const CUgraphNodeParams& node = *arguments.nodeParams;
  const auto graph = reinterpret_cast<uint64_t>(arguments.hGraph);
  if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    ReportGraphNode(thread, graph, wire::AllocationOp::kAllocationOpAlloc, node.alloc.dptr,
                    node.alloc.bytesize, DeviceOf(node.alloc.poolProps));
  } else if (node.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    ReportGraphNode(thread, graph, wire::AllocationOp::kAllocationOpFree, node.free.dptr, 0, -1);
  }
}
#endif

void RetainedPrimary(ThreadState&, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuDevicePrimaryCtxRetain_params>(data);
  if (Succeeded(data) && arguments.pctx != nullptr) NoteContextDevice(*arguments.pctx, arguments.dev);
}

void CreatedContext(ThreadState&, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuCtxCreate_v2_params>(data);
  if (Succeeded(data) && arguments.pctx != nullptr) NoteContextDevice(*arguments.pctx, arguments.dev);
}

// A driver call: counted, and remembered for the runtime call around it.
template <Recorder kRecord>
void OnDriver(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.driver_call.End();
  if (data.functionParams == nullptr) return;
  thread.last_allocation_correlation = data.correlationId;
  kRecord(thread, data);
  thread.memory_call_began_ns = 0;
}

template <Recorder kRecord>
void OnRuntime(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  if (data.correlationId != 0 && thread.last_allocation_correlation == data.correlationId) return;
  kRecord(thread, data);
}

// Memory is obtained or released somewhere between entry and exit: from both times the collector computes how
// far a level may be off when calls of several threads overlap. And the driver may reuse an address before
// the thread that released it has reported that: the release's begin shows which of the two it meant.
void BeginCall(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.memory_call_began_ns = Stamp();
  thread.driver_call.Begin(data.functionName, thread.memory_call_began_ns);
}

struct Hook {
  CUpti_CallbackId cbid;
  ApiHook hook;
  bool changes_level = true;  // obtains or releases memory: its entry is noted, too
};

using wire::MemoryKind;

constexpr Hook kDriverHooks[] = {
    {CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, OnDriver<Allocated<MemoryKind::kMemoryKindDevice>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2, OnDriver<AllocatedPitch>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged, OnDriver<Allocated<MemoryKind::kMemoryKindManaged>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, OnDriver<Freed<MemoryKind::kMemoryKindDevice>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, OnDriver<Allocated<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2, OnDriver<Allocated<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2, OnDriver<Allocated<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost, OnDriver<Freed<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister, OnDriver<Registered>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2, OnDriver<Registered>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostUnregister, OnDriver<Freed<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_DRIVER_TRACE_CBID_cuArrayCreate_v2, OnDriver<memory_calls::AllocatedArray>},
    {CUPTI_DRIVER_TRACE_CBID_cuArray3DCreate_v2, OnDriver<memory_calls::AllocatedArray3D>},
    {CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayCreate, OnDriver<memory_calls::AllocatedMipmaps>},
    {CUPTI_DRIVER_TRACE_CBID_cuArrayDestroy, OnDriver<Freed<MemoryKind::kMemoryKindArray>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayDestroy, OnDriver<Freed<MemoryKind::kMemoryKindArray>>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, OnDriver<AllocatedFromCurrentPool>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz, OnDriver<AllocatedFromCurrentPool>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync, OnDriver<AllocatedFromPool>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz, OnDriver<AllocatedFromPool>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, OnDriver<FreedInOrder>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz, OnDriver<FreedInOrder>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate, OnDriver<CreatedPool>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuDeviceGetDefaultMemPool, OnDriver<GotPool>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuDeviceGetMemPool, OnDriver<GotPool>, false},
#if CUDA_VERSION >= 13000
    {CUPTI_DRIVER_TRACE_CBID_cuMemGetDefaultMemPool, OnDriver<GotPoolAt>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMemGetMemPool, OnDriver<GotPoolAt>, false},
#endif
    {CUPTI_DRIVER_TRACE_CBID_cuMemPoolImportPointer, OnDriver<Imported>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuExternalMemoryGetMappedBuffer, OnDriver<Imported>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuExternalMemoryGetMappedMipmappedArray, OnDriver<Imported>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMemImportFromShareableHandle, OnDriver<memory_calls::ImportedHandle>, false},
#if CUDA_VERSION >= 12020
    {CUPTI_DRIVER_TRACE_CBID_cuMulticastCreate, OnDriver<memory_calls::MadeMulticastObject>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMulticastBindMem, OnDriver<memory_calls::BoundMemory>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMulticastBindAddr, OnDriver<memory_calls::BoundAddress>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMulticastUnbind, OnDriver<memory_calls::UnboundMemory>},
#endif
    {CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode, OnDriver<AddedAllocationNode>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode, OnDriver<AddedReleaseNode>, false},
#if CUDA_VERSION >= 12020
    {CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode, OnDriver<AddedNode<cuGraphAddNode_params>>, false},
#endif
#if CUDA_VERSION >= 12030
    {CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2, OnDriver<AddedNode<cuGraphAddNode_v2_params>>, false},
#endif
    {CUPTI_DRIVER_TRACE_CBID_cuMemCreate, OnDriver<memory_calls::CreatedPhysical>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemRelease, OnDriver<memory_calls::ReleasedPhysical>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle, OnDriver<memory_calls::RetainedPhysical>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMemMap, OnDriver<memory_calls::MappedPhysical>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuMemUnmap, OnDriver<memory_calls::UnmappedPhysical>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemMapArrayAsync, OnDriver<memory_calls::MappedIntoArrays>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemMapArrayAsync_ptsz, OnDriver<memory_calls::MappedIntoArrays>},
    {CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain, OnDriver<RetainedPrimary>, false},
    {CUPTI_DRIVER_TRACE_CBID_cuCtxCreate_v2, OnDriver<CreatedContext>, false},
};

constexpr Hook kRuntimeHooks[] = {
    {CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, OnRuntime<Allocated<MemoryKind::kMemoryKindDevice>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocPitch_v3020, OnRuntime<AllocatedPitch>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMalloc3D_v3020, OnRuntime<Allocated3D>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocManaged_v6000, OnRuntime<Allocated<MemoryKind::kMemoryKindManaged>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, OnRuntime<Freed<MemoryKind::kMemoryKindDevice>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocHost_v3020, OnRuntime<Allocated<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020, OnRuntime<Allocated<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaFreeHost_v3020, OnRuntime<Freed<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaHostRegister_v4000, OnRuntime<Registered>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaHostUnregister_v4000, OnRuntime<Freed<MemoryKind::kMemoryKindPinned>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocArray_v3020, OnRuntime<memory_calls::AllocatedRuntimeArray>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMalloc3DArray_v3020, OnRuntime<memory_calls::AllocatedRuntimeArray3D>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocMipmappedArray_v5000,
     OnRuntime<memory_calls::AllocatedRuntimeMipmaps>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaFreeArray_v3020, OnRuntime<Freed<MemoryKind::kMemoryKindArray>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaFreeMipmappedArray_v5000, OnRuntime<Freed<MemoryKind::kMemoryKindArray>>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020, OnRuntime<AllocatedFromCurrentPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_ptsz_v11020, OnRuntime<AllocatedFromCurrentPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocFromPoolAsync_v11020, OnRuntime<AllocatedFromPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMallocFromPoolAsync_ptsz_v11020, OnRuntime<AllocatedFromPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMemPoolCreate_v11020, OnRuntime<CreatedPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetDefaultMemPool_v11020, OnRuntime<GotPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetMemPool_v11020, OnRuntime<GotPool>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaMemPoolImportPointer_v11020, OnRuntime<Imported>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaExternalMemoryGetMappedBuffer_v10000, OnRuntime<Imported>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaExternalMemoryGetMappedMipmappedArray_v10000, OnRuntime<Imported>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_v11020, OnRuntime<FreedInOrder>},
    {CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_ptsz_v11020, OnRuntime<FreedInOrder>},
};

void Start() noexcept {
  for (const Hook& hook : kDriverHooks) {
    if (hook.changes_level) AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, hook.cbid, CUPTI_API_ENTER, BeginCall);
    const HookMakes makes = hook.changes_level ? HookMakes::kARecord : HookMakes::kNothing;
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, hook.cbid, CUPTI_API_EXIT, hook.hook, makes);
  }
  for (const Hook& hook : kRuntimeHooks) {
    AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, hook.cbid, CUPTI_API_EXIT, hook.hook);
  }
  pytorch::PatchLoadedObjects();
}

void Tick() noexcept {
  pytorch::PatchNewObjects();
  pytorch::ReportLevels();
}

}  // namespace

const Part kMemoryPart{"memory", Start, Tick, pytorch::ReportLevels};

}  // namespace gpuprobe::injector
