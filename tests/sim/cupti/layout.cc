#include "tests/sim/cupti/layout.h"

#include <cupti.h>
#include <cupti_activity_deprecated.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

namespace gpusim::cupti {
namespace {

// Releases in which a structure was replaced, by the numbers of versions.h.
constexpr uint32_t kCuda120 = 19;
constexpr uint32_t kCuda122 = 20;
constexpr uint32_t kCuda123 = 21;
constexpr uint32_t kCuda124 = 22;
constexpr uint32_t kCuda125 = 23;
constexpr uint32_t kCuda126 = 24;
constexpr uint32_t kCuda128 = 26;
constexpr uint32_t kCuda129 = 27;
constexpr uint32_t kCuda130 = 130000;
constexpr uint32_t kCuda131 = 130100;
constexpr uint32_t kCuda132 = 130200;
constexpr uint32_t kCuda132Update1 = 130201;
constexpr uint32_t kCuda133 = 130300;
constexpr uint32_t kCuda134 = 130400;
constexpr uint32_t kCuda135 = 130500;

struct Layout {
  uint32_t kind;
  uint32_t since;  // the release
  size_t bytes;    // 0: the kind is gone
};

// [observed] CUPTI 13.1.1 and all before it down to 11.8, without a GPU: the size of every kind of record,
// and the release in which it changed. From 13.2 on the library answers nothing without a driver.
// [documented] cupti_activity.h of 13.2 to 13.5: the sizes there. Each newer structure begins with the older
// one, but for NVLINK's in 13.2.
// Sizes that the headers of 13.0 do not know are numbers; e2e.real_cupti holds all of them against each
// release. Rows of a kind are in the order of the releases.
constexpr Layout kLayouts[] = {
    {CUPTI_ACTIVITY_KIND_MEMCPY, 0, sizeof(CUpti_ActivityMemcpy5)},
    {CUPTI_ACTIVITY_KIND_MEMCPY, kCuda128, sizeof(CUpti_ActivityMemcpy6)},
    {CUPTI_ACTIVITY_KIND_MEMCPY, kCuda134, 112},
    {CUPTI_ACTIVITY_KIND_MEMSET, 0, sizeof(CUpti_ActivityMemset4)},
    {CUPTI_ACTIVITY_KIND_MEMSET, kCuda134, 104},
    {CUPTI_ACTIVITY_KIND_KERNEL, 0, sizeof(CUpti_ActivityKernel8)},
    {CUPTI_ACTIVITY_KIND_KERNEL, kCuda120, sizeof(CUpti_ActivityKernel9)},
    {CUPTI_ACTIVITY_KIND_KERNEL, kCuda130, sizeof(CUpti_ActivityKernel10)},
    {CUPTI_ACTIVITY_KIND_KERNEL, kCuda131, 224},
    {CUPTI_ACTIVITY_KIND_KERNEL, kCuda133, 232},
    {CUPTI_ACTIVITY_KIND_KERNEL, kCuda134, 248},
    {CUPTI_ACTIVITY_KIND_DRIVER, 0, sizeof(CUpti_ActivityAPI)},
    {CUPTI_ACTIVITY_KIND_RUNTIME, 0, sizeof(CUpti_ActivityAPI)},
    {CUPTI_ACTIVITY_KIND_EVENT, 0, 24},
    {CUPTI_ACTIVITY_KIND_EVENT, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_METRIC, 0, 24},
    {CUPTI_ACTIVITY_KIND_METRIC, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_DEVICE, 0, sizeof(CUpti_ActivityDevice4)},
    {CUPTI_ACTIVITY_KIND_DEVICE, kCuda122, sizeof(CUpti_ActivityDevice5)},
    {CUPTI_ACTIVITY_KIND_DEVICE, kCuda132, 192},
    {CUPTI_ACTIVITY_KIND_CONTEXT, 0, sizeof(CUpti_ActivityContext)},
    {CUPTI_ACTIVITY_KIND_CONTEXT, kCuda124, sizeof(CUpti_ActivityContext2)},
    {CUPTI_ACTIVITY_KIND_CONTEXT, kCuda125, sizeof(CUpti_ActivityContext3)},
    {CUPTI_ACTIVITY_KIND_CONTEXT, kCuda131, 40},
    {CUPTI_ACTIVITY_KIND_NAME, 0, sizeof(CUpti_ActivityName)},
    {CUPTI_ACTIVITY_KIND_MARKER, 0, sizeof(CUpti_ActivityMarker2)},
    {CUPTI_ACTIVITY_KIND_MARKER_DATA, 0, sizeof(CUpti_ActivityMarkerData)},
    {CUPTI_ACTIVITY_KIND_MARKER_DATA, kCuda130, sizeof(CUpti_ActivityMarkerData2)},
    {CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR, 0, 24},
    {CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_GLOBAL_ACCESS, 0, 56},
    {CUPTI_ACTIVITY_KIND_GLOBAL_ACCESS, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_BRANCH, 0, 40},
    {CUPTI_ACTIVITY_KIND_BRANCH, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 0, sizeof(CUpti_ActivityOverhead)},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, kCuda123, sizeof(CUpti_ActivityOverhead2)},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, kCuda124, sizeof(CUpti_ActivityOverhead3)},
    {CUPTI_ACTIVITY_KIND_CDP_KERNEL, 0, sizeof(CUpti_ActivityCdpKernel)},
    {CUPTI_ACTIVITY_KIND_PREEMPTION, 0, sizeof(CUpti_ActivityPreemption)},
    {CUPTI_ACTIVITY_KIND_ENVIRONMENT, 0, sizeof(CUpti_ActivityEnvironment)},
    {CUPTI_ACTIVITY_KIND_EVENT_INSTANCE, 0, 32},
    {CUPTI_ACTIVITY_KIND_EVENT_INSTANCE, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, 0, sizeof(CUpti_ActivityMemcpyPtoP4)},
    {CUPTI_ACTIVITY_KIND_METRIC_INSTANCE, 0, 32},
    {CUPTI_ACTIVITY_KIND_METRIC_INSTANCE, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_INSTRUCTION_EXECUTION, 0, 48},
    {CUPTI_ACTIVITY_KIND_INSTRUCTION_EXECUTION, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER, 0, sizeof(CUpti_ActivityUnifiedMemoryCounter2)},
    {CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER, kCuda128, sizeof(CUpti_ActivityUnifiedMemoryCounter3)},
    {CUPTI_ACTIVITY_KIND_FUNCTION, 0, sizeof(CUpti_ActivityFunction)},
    {CUPTI_ACTIVITY_KIND_MODULE, 0, sizeof(CUpti_ActivityModule)},
    {CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE, 0, sizeof(CUpti_ActivityDeviceAttribute)},
    {CUPTI_ACTIVITY_KIND_SHARED_ACCESS, 0, 56},
    {CUPTI_ACTIVITY_KIND_SHARED_ACCESS, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_PC_SAMPLING, 0, 40},
    {CUPTI_ACTIVITY_KIND_PC_SAMPLING, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_PC_SAMPLING_RECORD_INFO, 0, 32},
    {CUPTI_ACTIVITY_KIND_PC_SAMPLING_RECORD_INFO, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_INSTRUCTION_CORRELATION, 0, 24},
    {CUPTI_ACTIVITY_KIND_INSTRUCTION_CORRELATION, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_OPENACC_DATA, 0, sizeof(CUpti_ActivityOpenAccData)},
    {CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH, 0, sizeof(CUpti_ActivityOpenAccLaunch)},
    {CUPTI_ACTIVITY_KIND_OPENACC_OTHER, 0, sizeof(CUpti_ActivityOpenAccOther)},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, 0, sizeof(CUpti_ActivityCudaEvent)},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, kCuda128, sizeof(CUpti_ActivityCudaEvent2)},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, kCuda135, 80},
    {CUPTI_ACTIVITY_KIND_STREAM, 0, sizeof(CUpti_ActivityStream)},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 0, sizeof(CUpti_ActivitySynchronization)},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, kCuda128, sizeof(CUpti_ActivitySynchronization2)},
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, 0, sizeof(CUpti_ActivityExternalCorrelation)},
    {CUPTI_ACTIVITY_KIND_NVLINK, 0, sizeof(CUpti_ActivityNvLink4)},
    {CUPTI_ACTIVITY_KIND_NVLINK, kCuda132, 88},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT, 0, 32},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT_INSTANCE, 0, 32},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT_INSTANCE, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC, 0, 32},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC_INSTANCE, 0, 32},
    {CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC_INSTANCE, kCuda130, 0},
    {CUPTI_ACTIVITY_KIND_MEMORY, 0, sizeof(CUpti_ActivityMemory)},
    {CUPTI_ACTIVITY_KIND_PCIE, 0, sizeof(CUpti_ActivityPcie)},
    {CUPTI_ACTIVITY_KIND_OPENMP, 0, sizeof(CUpti_ActivityOpenMp)},
    {CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API, 0, sizeof(CUpti_ActivityAPI)},
    {CUPTI_ACTIVITY_KIND_MEMORY2, 0, sizeof(CUpti_ActivityMemory3)},
    {CUPTI_ACTIVITY_KIND_MEMORY2, kCuda126, sizeof(CUpti_ActivityMemory4)},
    {CUPTI_ACTIVITY_KIND_MEMORY_POOL, 0, sizeof(CUpti_ActivityMemoryPool2)},
    {CUPTI_ACTIVITY_KIND_MEMORY_POOL, kCuda130, sizeof(CUpti_ActivityMemoryPool3)},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, 0, sizeof(CUpti_ActivityGraphTrace)},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, kCuda123, sizeof(CUpti_ActivityGraphTrace2)},
    {CUPTI_ACTIVITY_KIND_JIT, 0, sizeof(CUpti_ActivityJit)},
    {CUPTI_ACTIVITY_KIND_JIT, kCuda124, sizeof(CUpti_ActivityJit2)},
    {53, kCuda128, 56},   // DEVICE_GRAPH_TRACE
    {54, kCuda128, 64},   // MEM_DECOMPRESS
    {55, kCuda129, 32},   // CONFIDENTIAL_COMPUTE_ROTATION
    {56, kCuda131, 56},   // GRAPH_HOST_NODE
    {57, kCuda131, 24},   // COMPUTE_ENGINE_CTX_SWITCH
    {58, kCuda131, 48},   // HOST_LAUNCH
    {59, kCuda132, 152},  // GREEN_CONTEXT
    {59, kCuda132Update1, 168},
    {59, kCuda134, 304},
};

constexpr uint32_t kInvalidChannel = 0;

// What a record's bytes are before its fields are set.
thread_local uint8_t blank = 0;

// The newest structure is filled, then cut at the size that the claimed release had: layouts are
// prefix-compatible, which layout_test.cc checks field by field.
template <typename T>
Record Cut(const T& record, uint32_t api_version) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t size = RecordSize(static_cast<uint32_t>(record.kind), api_version);
  Record bytes(size);
  std::memcpy(bytes.data(), &record, std::min(size, sizeof(record)));
  return bytes;
}

// [documented] cupti_activity.h (13.4), CUpti_ActivityKernel13: the node of the graph, or of the child graph
// in it, that this node was instantiated or last updated from. Copies and fills have it, too, but for copies
// between devices.
struct SourcePlace {
  size_t graph;
  size_t node;
};
constexpr SourcePlace kKernelSource{232, 240};
constexpr SourcePlace kCopySource{96, 104};
constexpr SourcePlace kSetSource{88, 96};

Record WithSource(Record record, SourcePlace place, const Activity& activity, uint32_t api_version) {
  if (api_version < kCuda134) return record;
  std::memcpy(record.data() + place.graph, &activity.graph_source, sizeof(activity.graph_source));
  std::memcpy(record.data() + place.node, &activity.graph_node_source, sizeof(activity.graph_node_source));
  return record;
}

template <typename T>
T Zeroed() {
  T record;
  std::memset(&record, blank, sizeof(record));
  return record;
}

Record KernelRecord(const Activity& activity, uint32_t kind, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityKernel10>();
  record.kind = static_cast<CUpti_ActivityKind>(kind);
  record.registersPerThread = static_cast<uint16_t>(activity.registers_per_thread);
  record.start = activity.start_ns;
  record.end = activity.end_ns;
  record.completed = activity.end_ns;
  record.deviceId = activity.device;
  record.contextId = activity.context_uid;
  record.streamId = activity.stream_id;
  record.gridX = static_cast<int32_t>(activity.grid[0]);
  record.gridY = static_cast<int32_t>(activity.grid[1]);
  record.gridZ = static_cast<int32_t>(activity.grid[2]);
  record.blockX = static_cast<int32_t>(activity.block[0]);
  record.blockY = static_cast<int32_t>(activity.block[1]);
  record.blockZ = static_cast<int32_t>(activity.block[2]);
  record.staticSharedMemory = static_cast<int32_t>(activity.static_shared_bytes);
  record.dynamicSharedMemory = static_cast<int32_t>(activity.dynamic_shared_bytes);
  record.sharedMemoryExecuted = activity.static_shared_bytes + activity.dynamic_shared_bytes;
  record.correlationId = activity.correlation;
  record.gridId = activity.correlation;
  record.name = activity.name;
  record.queued = CUPTI_TIMESTAMP_UNKNOWN;
  record.submitted = CUPTI_TIMESTAMP_UNKNOWN;
  record.launchType = CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR;
  record.graphNodeId = activity.graph_node;
  record.graphId = activity.graph;
  record.channelID = kInvalidChannel;
  record.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
  return WithSource(Cut(record, api_version), kKernelSource, activity, api_version);
}

Record CopyRecord(const Activity& activity, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityMemcpy6>();
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = static_cast<uint8_t>(activity.copy_kind);
  record.srcKind = static_cast<uint8_t>(activity.src_memory);
  record.dstKind = static_cast<uint8_t>(activity.dst_memory);
  record.flags = activity.asynchronous ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
  record.bytes = activity.bytes;
  record.start = activity.start_ns;
  record.end = activity.end_ns;
  record.deviceId = activity.device;
  record.contextId = activity.context_uid;
  record.streamId = activity.stream_id;
  record.correlationId = activity.correlation;
  record.graphNodeId = activity.graph_node;
  record.graphId = activity.graph;
  record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  record.copyCount = 1;
  return WithSource(Cut(record, api_version), kCopySource, activity, api_version);
}

Record PeerCopyRecord(const Activity& activity, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityMemcpyPtoP4>();
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  record.srcKind = static_cast<uint8_t>(activity.src_memory);
  record.dstKind = static_cast<uint8_t>(activity.dst_memory);
  record.flags = activity.asynchronous ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
  record.bytes = activity.bytes;
  record.start = activity.start_ns;
  record.end = activity.end_ns;
  record.deviceId = activity.device;
  record.contextId = activity.context_uid;
  record.streamId = activity.stream_id;
  record.srcDeviceId = activity.src_device;
  record.srcContextId = activity.context_uid;
  record.dstDeviceId = activity.dst_device;
  record.dstContextId = activity.context_uid;
  record.correlationId = activity.correlation;
  record.graphNodeId = activity.graph_node;
  record.graphId = activity.graph;
  record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  return Cut(record, api_version);
}

Record SetRecord(const Activity& activity, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityMemset4>();
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.value = activity.memset_value;
  record.bytes = activity.bytes;
  record.start = activity.start_ns;
  record.end = activity.end_ns;
  record.deviceId = activity.device;
  record.contextId = activity.context_uid;
  record.streamId = activity.stream_id;
  record.correlationId = activity.correlation;
  record.flags = activity.asynchronous ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : 0;
  record.memoryKind = static_cast<uint16_t>(activity.dst_memory);
  record.graphNodeId = activity.graph_node;
  record.graphId = activity.graph;
  record.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
  return WithSource(Cut(record, api_version), kSetSource, activity, api_version);
}

Record SyncRecord(const Activity& activity, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivitySynchronization2>();
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = static_cast<CUpti_ActivitySynchronizationType>(activity.sync_type);
  record.start = activity.start_ns;
  record.end = activity.end_ns;
  record.correlationId = activity.correlation;
  record.contextId = activity.context_uid;
  const bool has_stream = activity.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE ||
                          activity.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  const bool has_event = activity.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE ||
                         activity.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  record.streamId = has_stream ? activity.stream_id : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  record.cudaEventId = has_event ? activity.event_id : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  return Cut(record, api_version);
}

Record MemoryRecord(const Activity& activity, uint32_t pid, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityMemory4>();
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType = static_cast<CUpti_ActivityMemoryOperationType>(activity.memory_operation);
  record.memoryKind = static_cast<CUpti_ActivityMemoryKind>(activity.dst_memory);
  record.correlationId = activity.correlation;
  record.address = activity.address;
  record.bytes = activity.bytes;
  record.timestamp = activity.start_ns;
  record.processId = pid;
  record.deviceId = activity.device;
  record.contextId = activity.context_uid;
  record.streamId =
      activity.asynchronous ? activity.stream_id : static_cast<uint32_t>(CUPTI_INVALID_STREAM_ID);
  record.name = activity.name;
  record.isAsync = activity.asynchronous ? 1 : 0;
  if (activity.pool_address != 0) {
    record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    record.memoryPoolConfig.address = activity.pool_address;
    record.memoryPoolConfig.releaseThreshold = activity.pool_release_threshold;
    record.memoryPoolConfig.pool.size = activity.pool_reserved;
    record.memoryPoolConfig.utilizedSize = activity.pool_used;
  }
  return Cut(record, api_version);
}

Record PoolRecord(const Activity& activity, uint32_t pid, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityMemoryPool3>();
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  record.memoryPoolOperationType =
      static_cast<CUpti_ActivityMemoryPoolOperationType>(activity.memory_operation);
  record.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  record.correlationId = activity.correlation;
  record.processId = pid;
  record.deviceId = activity.device;
  record.address = activity.pool_address;
  record.size = activity.pool_reserved;
  record.releaseThreshold = activity.pool_release_threshold;
  record.timestamp = activity.start_ns;
  record.utilizedSize = activity.pool_used;
  return Cut(record, api_version);
}

// A damaged record's kind may be no value of the enumeration.
uint32_t KindAt(const uint8_t* record) {
  uint32_t kind = 0;
  std::memcpy(&kind, record + offsetof(CUpti_Activity, kind), sizeof(kind));
  return kind;
}

}  // namespace

size_t RecordSize(uint32_t kind, uint32_t api_version) {
  size_t bytes = 0;
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) kind = CUPTI_ACTIVITY_KIND_KERNEL;
  for (const Layout& layout : kLayouts) {
    if (layout.kind != kind) continue;
    if (layout.since > api_version) break;
    bytes = layout.bytes;
  }
  return bytes;
}

Record ActivityRecord(const Activity& activity, uint32_t kernel_kind, uint32_t pid, uint32_t api_version) {
  switch (activity.kind) {
    case ActivityKind::kKernel:
      return KernelRecord(activity, kernel_kind, api_version);
    case ActivityKind::kMemcpy:
      return CopyRecord(activity, api_version);
    case ActivityKind::kPeerCopy:
      return PeerCopyRecord(activity, api_version);
    case ActivityKind::kMemset:
      return SetRecord(activity, api_version);
    case ActivityKind::kSync:
      return SyncRecord(activity, api_version);
    case ActivityKind::kMemory:
      return MemoryRecord(activity, pid, api_version);
    case ActivityKind::kMemoryPool:
      return PoolRecord(activity, pid, api_version);
  }
  return {};
}

Record ApiRecord(const ApiCall& call, uint32_t pid, uint32_t tid, uint32_t result, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityAPI>();
  record.kind =
      call.domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
  record.cbid = call.cbid;
  record.start = call.start_ns;
  record.end = call.end_ns;
  record.processId = pid;
  record.threadId = tid;
  record.correlationId = call.correlation;
  record.returnValue = result;
  return Cut(record, api_version);
}

Record ExternalCorrelationRecord(uint32_t external_kind, uint64_t external_id, uint32_t correlation) {
  auto record = Zeroed<CUpti_ActivityExternalCorrelation>();
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = static_cast<CUpti_ExternalCorrelationKind>(external_kind);
  record.externalId = external_id;
  record.correlationId = correlation;
  return Cut(record, kCuda130);
}

Record DeviceRecord(const DeviceFacts& facts, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityDevice5>();
  record.kind = CUPTI_ACTIVITY_KIND_DEVICE;
  record.flags = CUPTI_ACTIVITY_FLAG_DEVICE_CONCURRENT_KERNELS;
  record.globalMemoryBandwidth = facts.memory_bandwidth_bytes_per_s / 1000;  // the header's unit: kBytes/sec
  record.globalMemorySize = facts.memory_bytes;
  record.numThreadsPerWarp = 32;
  record.numMultiprocessors = facts.multiprocessors;
  record.maxThreadsPerBlock = 1024;
  record.maxBlockDimX = 1024;
  record.maxBlockDimY = 1024;
  record.maxBlockDimZ = 64;
  record.maxGridDimX = 0x7fffffff;
  record.maxGridDimY = 65535;
  record.maxGridDimZ = 65535;
  record.computeCapabilityMajor = facts.compute_major;
  record.computeCapabilityMinor = facts.compute_minor;
  record.id = facts.ordinal;
  std::memcpy(&record.uuid, facts.uuid, sizeof(facts.uuid));
  record.name = facts.name;
  record.isCudaVisible = 1;
  return Cut(record, api_version);
}

Record ContextRecord(uint32_t context_uid, uint32_t device, uint32_t null_stream, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityContext3>();
  record.kind = CUPTI_ACTIVITY_KIND_CONTEXT;
  record.contextId = context_uid;
  record.deviceId = device;
  record.computeApiKind = CUPTI_ACTIVITY_COMPUTE_API_CUDA;
  record.nullStreamId = static_cast<uint16_t>(null_stream);
  return Cut(record, api_version);
}

Record StreamRecord(uint32_t context_uid, uint32_t stream_id, uint32_t priority, uint32_t flag,
                    uint32_t correlation) {
  auto record = Zeroed<CUpti_ActivityStream>();
  record.kind = CUPTI_ACTIVITY_KIND_STREAM;
  record.contextId = context_uid;
  record.streamId = stream_id;
  record.priority = priority;
  record.flag = static_cast<CUpti_ActivityStreamFlag>(flag);
  record.correlationId = correlation;
  return Cut(record, kCuda130);
}

// [documented] cupti_activity.h, CUpti_ActivityOverhead3: the correlation id is that of the call that had the
// overhead, and 0 for flushes. Details are there for a full command buffer only, which the node never has.
Record OverheadRecord(const OverheadSpan& span, uint32_t pid, uint32_t tid, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityOverhead3>();
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = static_cast<CUpti_ActivityOverheadKind>(span.what);
  record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  record.objectId.pt.processId = pid;
  record.objectId.pt.threadId = tid;
  record.start = span.start_ns;
  record.end = span.end_ns;
  record.correlationId = span.correlation;
  return Cut(record, api_version);
}

Record EmptyRecord(uint32_t kind, uint32_t api_version) {
  Record bytes(RecordSize(kind, api_version));
  reinterpret_cast<CUpti_Activity*>(bytes.data())->kind = static_cast<CUpti_ActivityKind>(kind);
  return bytes;
}

Record GraphTraceRecord(const GraphRun& run, uint32_t api_version) {
  auto record = Zeroed<CUpti_ActivityGraphTrace2>();
  record.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  record.correlationId = run.correlation;
  record.start = run.start_ns;
  record.end = run.end_ns;
  record.deviceId = run.device;
  record.graphId = run.graph;
  record.contextId = run.context_uid;
  record.streamId = run.stream_id;
  record.endDeviceId = run.device;
  record.endContextId = run.context_uid;
  return Cut(record, api_version);
}

// [documented] cupti_activity.h, cuptiActivityGetNextRecord: INVALID_KIND for a record that is incomplete or
// invalid, MAX_LIMIT_REACHED at the end.
// [observed] CUPTI 13.1.1 and all before it down to 11.8, without a GPU: on buffers made by hand, the error
// comes on every further call, and the record pointer stays where it was. Up to 12.4 it is UNKNOWN, from 12.4
// Update 1 on INVALID_KIND (the two have one number; the node takes the newer). A record that the valid bytes
// cut off is the end, not an error.
CUptiResult NextRecord(uint8_t* buffer, size_t valid_size, CUpti_Activity** record, uint32_t api_version) {
  uint8_t* next = buffer;
  if (*record != nullptr) {
    next = reinterpret_cast<uint8_t*>(*record);
    next += RecordSize(KindAt(next), api_version);
  }
  if (next + sizeof(CUpti_Activity) > buffer + valid_size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  const size_t size = RecordSize(KindAt(next), api_version);
  if (size == 0) return api_version < kCuda124 ? CUPTI_ERROR_UNKNOWN : CUPTI_ERROR_INVALID_KIND;
  if (next + size > buffer + valid_size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

namespace {

// A record of `kind` whose fields do not matter.
Record AnyRecord(uint32_t kind, uint32_t api_version) {
  Activity activity;
  activity.pool_address = 1;  // or its pool would look unset
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL:
      return KernelRecord(activity, kind, api_version);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return CopyRecord(activity, api_version);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return PeerCopyRecord(activity, api_version);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return SetRecord(activity, api_version);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return SyncRecord(activity, api_version);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return MemoryRecord(activity, 0, api_version);
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      return PoolRecord(activity, 0, api_version);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return GraphTraceRecord(GraphRun{}, api_version);
    default:
      return {};
  }
}

// Which bytes are written: those that are the same whatever was there before. All, for a kind without a row
// in AnyRecord.
std::vector<bool> WrittenBytes(uint32_t kind, uint32_t api_version) {
  blank = 0;
  const Record on_zeros = AnyRecord(kind, api_version);
  blank = 0xff;
  const Record on_ones = AnyRecord(kind, api_version);
  blank = 0;
  std::vector<bool> written(RecordSize(kind, api_version), true);
  for (size_t i = 0; i < on_zeros.size(); ++i) written[i] = on_zeros[i] == on_ones[i];
  return written;
}

}  // namespace

void CopyWritten(const Record& record, uint8_t* to, uint32_t api_version) {
  static auto* const kWritten = new std::map<std::pair<uint32_t, uint32_t>, std::vector<bool>>;
  static auto* const kMutex = new std::mutex;
  const auto kind = static_cast<uint32_t>(reinterpret_cast<const CUpti_Activity*>(record.data())->kind);
  const std::scoped_lock lock(*kMutex);
  auto [entry, is_new] = kWritten->try_emplace({kind, api_version});
  if (is_new) entry->second = WrittenBytes(kind, api_version);
  for (size_t i = 0; i < record.size(); ++i) {
    if (entry->second[i]) to[i] = record[i];
  }
}

}  // namespace gpusim::cupti
