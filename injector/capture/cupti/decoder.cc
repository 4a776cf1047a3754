#include "injector/capture/cupti/decoder.h"

#include <cstring>

#include "injector/base/lock.h"
#include "injector/base/losses.h"
#include "injector/base/program_functions.h"
#include "injector/capture/cupti/guest_records.h"
#include "injector/capture/cupti/kinds.h"
#include "injector/core/event_ring.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector {

constinit std::atomic<bool> expect_unfinished{false};

namespace {

// 2020 and 2100. Ticks of a processor, or times since it was started, are neither: another tool may have
// given CUPTI such a clock before we came, and CUPTI does not say so.
constexpr uint64_t kEarliestNs = 1'577'836'800'000'000'000;
constexpr uint64_t kLatestNs = 4'102'444'800'000'000'000;
constexpr uint32_t kVersionWithOverheadCalls = 21;    // CUDA 12.3: Overhead2
constexpr uint32_t kVersionWithOverheadDetails = 22;  // CUDA 12.4: Overhead3
constexpr uint32_t kVersionWithGraphNodes = 13;       // CUDA 11.0: Kernel5, Memcpy3, MemcpyPtoP2, Memset2

bool ValidTimes(uint64_t start_ns, uint64_t end_ns) noexcept {
  if (start_ns >= kEarliestNs && end_ns >= start_ns && end_ns < kLatestNs) return true;
  const bool runs = end_ns == 0 && expect_unfinished.load(std::memory_order_relaxed);
  CountLoss(runs ? wire::LossReason::kLossUnfinishedAtFlush : wire::LossReason::kLossInvalidTimestamp);
  return false;
}

bool LeftOut() noexcept {
  CountSelf(SelfCounter::kOutsideWindow);
  return true;
}

// Also false, and counted, for records that were not asked for.
bool Usable(const Recording& window, uint64_t start_ns, uint64_t end_ns) noexcept {
  if (!ValidTimes(start_ns, end_ns)) return false;
  if (window.Holds(start_ns)) return true;
  CountSelf(SelfCounter::kOutsideWindow);
  return false;
}

// Belongs to a step that is not recorded.
bool InOtherStep(uint32_t correlation, uint64_t end_ns) noexcept {
  return step_gate.in_use() && !step_gate.KeepsWork(correlation, end_ns) && LeftOut();
}

// What ran while a capture switched CUPTI's kinds has a record without times. It is none of the capture's.
bool IsOfASwitch(uint32_t correlation, uint64_t start_ns) noexcept {
  return start_ns == 0 && step_gate.on_demand() && !step_gate.IsRecorded(correlation);
}

// For work on the device.
bool Usable(uint32_t correlation, uint64_t start_ns, uint64_t end_ns) noexcept {
  if (IsOfASwitch(correlation, start_ns)) return !LeftOut();
  return Usable(recording, start_ns, end_ns) && !InOtherStep(correlation, end_ns);
}

wire::CopyDirection Direction(uint8_t kind) noexcept {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return wire::CopyDirection::kCopyDirectionH2d;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return wire::CopyDirection::kCopyDirectionD2h;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
      return wire::CopyDirection::kCopyDirectionD2d;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return wire::CopyDirection::kCopyDirectionH2h;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return wire::CopyDirection::kCopyDirectionP2p;
    default:
      return wire::CopyDirection::kCopyDirectionUnknown;
  }
}

wire::MemoryKind Memory(uint32_t kind) noexcept {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
      return wire::MemoryKind::kMemoryKindPageable;
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return wire::MemoryKind::kMemoryKindPinned;
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC:
      return wire::MemoryKind::kMemoryKindDevice;
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC:
      return wire::MemoryKind::kMemoryKindManaged;
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      return wire::MemoryKind::kMemoryKindArray;
    default:
      return wire::MemoryKind::kMemoryKindUnknown;
  }
}

wire::SyncKind Sync(uint32_t type) noexcept {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return wire::SyncKind::kSyncKindEvent;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return wire::SyncKind::kSyncKindStreamWaitEvent;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return wire::SyncKind::kSyncKindStream;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return wire::SyncKind::kSyncKindDevice;
    default:
      return wire::SyncKind::kSyncKindUnknown;
  }
}

// CUPTI numbers what the compiler takes 1, and everything else from 1 << 16 on, in this order.
wire::OverheadKind Overhead(uint32_t kind) noexcept {
  constexpr auto kLast = static_cast<uint32_t>(wire::OverheadKind::kOverheadKindManagedMemory);
  if (kind == CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER) return wire::OverheadKind::kOverheadKindCompiler;
  const uint32_t number = (kind >> 16) + 1;
  const bool known = kind != 0 && (kind & 0xffff) == 0 && number <= kLast;
  return known ? static_cast<wire::OverheadKind>(number) : wire::OverheadKind::kOverheadKindUnknown;
}

// CUPTI writes all ones where a wait has no stream or event.
// The constant is an int in headers before 13.0.
uint32_t IdOrZero(uint32_t id) noexcept {
  return id == static_cast<uint32_t>(CUPTI_SYNCHRONIZATION_INVALID_VALUE) ? 0 : id;
}

template <typename Record>
const Record& As(const CUpti_Activity* record) noexcept {
  return *reinterpret_cast<const Record*>(record);
}

bool IsKernel(const CUpti_Activity* record) noexcept {
  return record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL;
}

}  // namespace

bool Decoder::HasGraphNodes() const noexcept { return api_->version >= kVersionWithGraphNodes; }

struct Decoder::Chunk {
  static constexpr uint32_t kRecords = KernelBlock::kRows;

  KernelBlock kernels;
  const CUpti_ActivityKernel4* kernel_records[kRecords];
  uint8_t unknown[kRecords];  // rows whose site is to be looked up
  uint32_t unknown_count;
  const CUpti_Activity* others[kRecords];
  uint32_t other_count;
};

uint32_t Decoder::NextEpoch() noexcept {
  const Lock lock(stream_->mutex);
  ++epoch_;
  if ((epoch_ & 0xffff) == 0) ++epoch_;
  return epoch_;
}

void Decoder::DecodeBuffer(uint8_t* buffer, size_t valid_bytes) noexcept {
  if (buffer == nullptr || valid_bytes == 0) return;
  const uint32_t epoch = NextEpoch();
  SiteCache* sites = sites_.Claim() ? &sites_ : nullptr;
  if (sites != nullptr) sites->StartEpoch(epoch);
  CUpti_Activity* record = nullptr;
  Chunk chunk;
  bool more = true;
  while (more) {
    more = Gather(buffer, valid_bytes, sites, static_cast<uint16_t>(epoch), &record, &chunk);
    Decode(&chunk, sites, epoch);
  }
  if (sites != nullptr) sites->Release();
}

// Walking from record to record is a chain of loads that stalls the processor: as much work as possible is
// done alongside it, and without a branch that depends on the record.
bool Decoder::Gather(uint8_t* buffer, size_t valid_bytes, const SiteCache* sites, uint16_t epoch,
                     CUpti_Activity** record, Chunk* chunk) noexcept {
  const auto next_record = api_->ActivityGetNextRecord;
  const bool graph_nodes = HasGraphNodes();
  const bool kernels_wanted = recording.Wants(kRecordKernels);
  const Recording window = recording;
  const bool by_step = step_gate.in_use();
  const CachedSite no_site = {};
  KernelBlock& block = chunk->kernels;
  uint64_t graph_any = 0;
  uint32_t rows = 0;
  uint32_t unknown_count = 0;
  uint32_t other_count = 0;
  bool more = true;
  const CachedSite* last_site = nullptr;
  const auto check_last = [&]() noexcept {
    const CachedSite& site = *last_site;
    const bool known = SiteCache::Matches(site, *chunk->kernel_records[rows - 1]) & (site.epoch == epoch);
    chunk->unknown[unknown_count] = static_cast<uint8_t>(rows - 1);
    unknown_count += static_cast<uint32_t>(!known);
    block.site[rows - 1] = site.site;
  };
  while (rows < Chunk::kRecords && other_count < Chunk::kRecords) {
    const CUptiResult result = next_record(buffer, valid_bytes, record);
    if (result != CUPTI_SUCCESS) {
      // INVALID_KIND since 12.4 Update 1, UNKNOWN before.
      if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) CountDamaged(buffer, valid_bytes, *record);
      more = false;
      break;
    }
    const CUpti_Activity* found = *record;
    if (!IsKernel(found)) {
      chunk->others[other_count++] = found;
      continue;
    }
    if (!kernels_wanted) continue;
    const auto& kernel = As<CUpti_ActivityKernel4>(found);
    if (kernel.start == 0 && IsOfASwitch(kernel.correlationId, 0) && LeftOut()) continue;
    if (!Usable(window, kernel.start, kernel.end)) continue;
    if (by_step && InOtherStep(kernel.correlationId, kernel.end)) continue;
    const CachedSite* site = sites == nullptr ? &no_site : &sites->Guess(kernel);
    __builtin_prefetch(site);
    if (rows > 0) check_last();
    last_site = site;
    chunk->kernel_records[rows] = &kernel;
    block.start_ns[rows] = kernel.start;
    block.end_ns[rows] = kernel.end;
    const uint64_t node = graph_nodes ? As<CUpti_ActivityKernel5>(found).graphNodeId : 0;
    block.correlation[rows] = CorrelationOf(kernel.correlationId, node);
    block.graph_node[rows] = node;
    graph_any |= node;
    ++rows;
  }
  if (rows > 0) check_last();
  block.rows = rows;
  block.graph_any = graph_any;
  chunk->unknown_count = unknown_count;
  chunk->other_count = other_count;
  return more;
}

void Decoder::Decode(Chunk* chunk, SiteCache* sites, uint32_t epoch) noexcept {
  if (Put(chunk, sites, epoch)) WakeProbeThread();
}

// True when a batch was sent because it was full: the launches of its records are still in the rings, and
// should follow soon.
bool Decoder::Put(Chunk* chunk, SiteCache* sites, uint32_t epoch) noexcept {
  const Lock lock(stream_->mutex);
  const uint64_t sealed = stream_->builder.sequence();
  for (uint32_t i = 0; i < chunk->unknown_count; ++i)
    stream_->builder.ExpectKernelName(chunk->kernel_records[chunk->unknown[i]]->name);
  for (uint32_t i = 0; i < chunk->unknown_count; ++i) {
    const uint32_t row = chunk->unknown[i];
    chunk->kernels.site[row] = LookUpSite(*chunk->kernel_records[row], sites, epoch);
  }
  if (chunk->kernels.graph_any != 0 && HasNodeSources()) {
    for (uint32_t i = 0; i < chunk->kernels.rows; ++i) {
      if (const uint64_t node = chunk->kernels.graph_node[i]; node != 0)
        sources_.Note(chunk->kernel_records[i], NodeSources::kInKernel, node, chunk->kernels.correlation[i],
                      &stream_->builder);
    }
  }
  stream_->builder.AddKernels(chunk->kernels);
  for (uint32_t i = 0; i < chunk->other_count; ++i) DecodeOther(chunk->others[i]);
  return stream_->builder.sequence() != sealed;
}

void Decoder::DecodeOther(const CUpti_Activity* record) noexcept {
  if (!IsRecorded(record->kind) && IsGuestsKind(record->kind)) return;
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      DecodeCopy(record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      DecodePeerCopy(record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      DecodeMemset(record);
      break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      DecodeSync(record);
      break;
    case CUPTI_ACTIVITY_KIND_DEVICE:
      DecodeDevice(record);
      break;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      DecodeGraphRun(record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      DecodeMemory(record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      DecodePool(record);
      break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      DecodeOverhead(record);
      break;
    default:
      CountLoss(wire::LossReason::kLossUnknownRecord);
      stream_->builder.unrecorded().UnknownKind(static_cast<uint32_t>(record->kind));
      break;
  }
}

// CUPTI stops at a record that it cannot read, so all records behind it are lost. Their number is estimated:
// they are assumed as large as those before it (except overheads, which are small and rare), or as kernel
// records.
void Decoder::CountDamaged(uint8_t* buffer, size_t valid_bytes, const CUpti_Activity* last) noexcept {
  const uint8_t* from = buffer;
  size_t record_bytes = kTypicalRecordBytes;
  if (last != nullptr) {
    const auto offset = static_cast<size_t>(reinterpret_cast<const uint8_t*>(last) - buffer);
    size_t bytes = 0;
    size_t before = 0;
    const CUpti_Activity* previous = nullptr;
    for (CUpti_Activity* record = nullptr;
         record != last && api_->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS;) {
      if (previous != nullptr && previous->kind != CUPTI_ACTIVITY_KIND_OVERHEAD) {
        bytes += static_cast<size_t>(reinterpret_cast<const uint8_t*>(record) -
                                     reinterpret_cast<const uint8_t*>(previous));
        ++before;
      }
      previous = record;
    }
    if (before > 0) record_bytes = bytes / before;
    from = buffer + offset + record_bytes;
  }
  const uint8_t* const end = buffer + valid_bytes;
  const size_t records = from < end ? (static_cast<size_t>(end - from) + record_bytes - 1) / record_bytes : 1;
  CountLoss(wire::LossReason::kLossUnknownRecord, records);
  const Lock lock(stream_->mutex);
  stream_->builder.unrecorded().UnknownKind(0);
}

void Decoder::Init() noexcept {
  static_cast<void>(sites_.Init());
  if (HasNodeSources()) sources_.Init();
}

uint32_t Decoder::InternSite(const CUpti_ActivityKernel4& kernel, uint32_t name_id) noexcept {
  return stream_->builder.Site(
      {.name = name_id,
       .device = kernel.deviceId,
       .context = kernel.contextId,
       .stream = kernel.streamId,
       .grid = {static_cast<uint32_t>(kernel.gridX), static_cast<uint32_t>(kernel.gridY),
                static_cast<uint32_t>(kernel.gridZ)},
       .block = {static_cast<uint32_t>(kernel.blockX), static_cast<uint32_t>(kernel.blockY),
                 static_cast<uint32_t>(kernel.blockZ)},
       .static_shared_bytes = static_cast<uint32_t>(kernel.staticSharedMemory),
       .dynamic_shared_bytes = static_cast<uint32_t>(kernel.dynamicSharedMemory),
       .registers_per_thread = kernel.registersPerThread});
}

// The first record of a site in a buffer, or in the process: the name's text has to be compared.
uint32_t Decoder::LookUpSite(const CUpti_ActivityKernel4& kernel, SiteCache* sites, uint32_t epoch) noexcept {
  const uint32_t name_id = stream_->builder.KernelName(kernel.name, epoch);
  if (sites == nullptr) return InternSite(kernel, name_id);
  CachedSite& site = sites->FindOrAdd(kernel);
  // Also when the pointer now refers to another text.
  if (site.epoch == 0 || site.name_id != name_id) {
    site.site = InternSite(kernel, name_id);
    site.name_id = name_id;
  }
  site.epoch = static_cast<uint16_t>(epoch);
  return site.site;
}

void Decoder::DecodeCopy(const CUpti_Activity* record) noexcept {
  const auto& copy = As<CUpti_ActivityMemcpy>(record);
  if (!Usable(copy.correlationId, copy.start, copy.end)) return;
  if (copy.bytes < recording.min_copy_bytes) {
    stream_->builder.unrecorded().SmallCopy(Direction(copy.copyKind), copy.bytes, copy.end - copy.start);
    return;
  }
  const uint64_t node = HasGraphNodes() ? As<CUpti_ActivityMemcpy3>(record).graphNodeId : 0;
  if (node != 0 && HasNodeSources())
    sources_.Note(record, NodeSources::kInCopy, node, copy.correlationId, &stream_->builder);
  stream_->builder.Add(wire::CopyRow{.start_ns = copy.start,
                                     .end_ns = copy.end,
                                     .bytes = copy.bytes,
                                     .direction = Direction(copy.copyKind),
                                     .src_memory = Memory(copy.srcKind),
                                     .dst_memory = Memory(copy.dstKind),
                                     .device = copy.deviceId,
                                     .context = copy.contextId,
                                     .stream = copy.streamId,
                                     .correlation = CorrelationOf(copy.correlationId, node),
                                     .graph_node = node,
                                     .asynchronous = (copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0,
                                     .peer_device = -1});
}

void Decoder::DecodePeerCopy(const CUpti_Activity* record) noexcept {
  const auto& copy = As<CUpti_ActivityMemcpyPtoP>(record);
  if (!Usable(copy.correlationId, copy.start, copy.end)) return;
  if (copy.bytes < recording.min_copy_bytes) {
    stream_->builder.unrecorded().SmallCopy(wire::CopyDirection::kCopyDirectionP2p, copy.bytes,
                                            copy.end - copy.start);
    return;
  }
  const uint64_t node = HasGraphNodes() ? As<CUpti_ActivityMemcpyPtoP2>(record).graphNodeId : 0;
  const uint32_t peer = copy.deviceId == copy.srcDeviceId ? copy.dstDeviceId : copy.srcDeviceId;
  stream_->builder.Add(wire::CopyRow{.start_ns = copy.start,
                                     .end_ns = copy.end,
                                     .bytes = copy.bytes,
                                     .direction = wire::CopyDirection::kCopyDirectionP2p,
                                     .src_memory = Memory(copy.srcKind),
                                     .dst_memory = Memory(copy.dstKind),
                                     .device = copy.deviceId,
                                     .context = copy.contextId,
                                     .stream = copy.streamId,
                                     .correlation = CorrelationOf(copy.correlationId, node),
                                     .graph_node = node,
                                     .asynchronous = (copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0,
                                     .peer_device = static_cast<int32_t>(peer)});
}

void Decoder::DecodeMemset(const CUpti_Activity* record) noexcept {
  const auto& memset_record = As<CUpti_ActivityMemset>(record);
  if (!Usable(memset_record.correlationId, memset_record.start, memset_record.end)) return;
  const uint64_t node = HasGraphNodes() ? As<CUpti_ActivityMemset2>(record).graphNodeId : 0;
  stream_->builder.Add(wire::MemsetRow{.start_ns = memset_record.start,
                                       .end_ns = memset_record.end,
                                       .bytes = memset_record.bytes,
                                       .value = memset_record.value,
                                       .memory = Memory(memset_record.memoryKind),
                                       .device = memset_record.deviceId,
                                       .context = memset_record.contextId,
                                       .stream = memset_record.streamId,
                                       .correlation = CorrelationOf(memset_record.correlationId, node),
                                       .graph_node = node});
}

void Decoder::DecodeSync(const CUpti_Activity* record) noexcept {
  const auto& sync = As<CUpti_ActivitySynchronization>(record);
  if (!Usable(recording, sync.start, sync.end)) return;
  const wire::SyncKind what = Sync(static_cast<uint32_t>(sync.type));
  if (what == wire::SyncKind::kSyncKindStreamWaitEvent) {
    if (step_gate.in_use() && !step_gate.Holds(sync.start) && LeftOut()) return;
  } else if (step_gate.in_use() && !step_gate.KeepsWait(sync.start, sync.end) && LeftOut()) {
    return;
  }
  stream_->builder.Add(wire::SyncRow{.start_ns = sync.start,
                                     .end_ns = sync.end,
                                     .what = what,
                                     .context = IdOrZero(sync.contextId),
                                     .stream = IdOrZero(sync.streamId),
                                     .event = IdOrZero(sync.cudaEventId),
                                     .correlation = sync.correlationId});
}

void Decoder::DecodeGraphRun(const CUpti_Activity* record) noexcept {
  const auto& run = As<CUpti_ActivityGraphTrace>(record);
  if (!Usable(run.correlationId, run.start, run.end)) return;
  stream_->builder.Add(wire::GraphRunRow{.start_ns = run.start,
                                         .end_ns = run.end,
                                         .graph = run.graphId,
                                         .device = run.deviceId,
                                         .context = run.contextId,
                                         .stream = run.streamId,
                                         .correlation = CorrelationOf(run.correlationId, run.graphId)});
}

// Allocations come from the driver's callbacks (capture/memory/part.cc), which have the ranges around them:
// of these records only the state of the pool is used. An imported pool's is its owner's.
void Decoder::DecodeMemory(const CUpti_Activity* record) noexcept {
  const auto& memory = As<CUpti_ActivityMemory3>(record);
  if (memory.memoryPoolConfig.memoryPoolType != CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL) return;
  if (!ValidTimes(memory.timestamp, memory.timestamp)) return;
  stream_->builder.NotePool({.operation = PoolOperation::kUse,
                             .address = memory.memoryPoolConfig.address,
                             .time_ns = memory.timestamp,
                             .used_bytes = memory.memoryPoolConfig.utilizedSize,
                             .reserved_bytes = memory.memoryPoolConfig.pool.size,
                             .release_threshold_bytes = memory.memoryPoolConfig.releaseThreshold,
                             .device = memory.deviceId});
}

void Decoder::DecodePool(const CUpti_Activity* record) noexcept {
  const auto& pool = As<CUpti_ActivityMemoryPool2>(record);
  if (pool.memoryPoolType != CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL) return;
  if (!ValidTimes(pool.timestamp, pool.timestamp)) return;
  PoolOperation operation = PoolOperation::kUse;
  if (pool.memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED)
    operation = PoolOperation::kCreate;
  if (pool.memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED)
    operation = PoolOperation::kDestroy;
  if (pool.memoryPoolOperationType == CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED)
    operation = PoolOperation::kTrim;
  stream_->builder.NotePool({.operation = operation,
                             .address = pool.address,
                             .time_ns = pool.timestamp,
                             .used_bytes = pool.utilizedSize,
                             .reserved_bytes = pool.size,
                             .release_threshold_bytes = pool.releaseThreshold,
                             .device = pool.deviceId});
}

// CUPTI allocates the details of a full command buffer; the record's receiver has to free them.
void Decoder::DecodeOverhead(const CUpti_Activity* record) noexcept {
  const auto& overhead = As<CUpti_ActivityOverhead>(record);
  const bool has_call = api_->version >= kVersionWithOverheadCalls;
  // cupti_activity.h from 12.4 to 13.5: "Client is responsible for freeing this memory using the free
  // function". All of these releases take malloc and free as the program has them. Only a full command buffer
  // has details, and kept, they would grow with every launch that waits for room.
  if (api_->version >= kVersionWithOverheadDetails &&
      overhead.overheadKind == CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL) {
    program_functions.free(As<CUpti_ActivityOverhead3>(record).overheadData);
  }
  if (!Usable(recording, overhead.start, overhead.end)) return;
  if (step_gate.in_use() && !step_gate.Holds(overhead.start) && LeftOut()) return;
  stream_->builder.Add(
      wire::OverheadRow{.start_ns = overhead.start,
                        .end_ns = overhead.end,
                        .what = Overhead(static_cast<uint32_t>(overhead.overheadKind)),
                        .correlation = has_call ? As<CUpti_ActivityOverhead2>(record).correlationId : 0});
}

void Decoder::DecodeDevice(const CUpti_Activity* record) noexcept {
  const auto& device = As<CUpti_ActivityDevice2>(record);
  devices_seen_ = true;
  DeviceRow row{};
  row.ordinal = device.id;
  row.name =
      device.name == nullptr ? std::string_view() : std::string_view(device.name, strnlen(device.name, 256));
  std::memcpy(row.uuid, device.uuid.bytes, sizeof(row.uuid));
  row.memory_bytes = device.globalMemorySize;
  row.memory_bandwidth_bytes_per_s = device.globalMemoryBandwidth * 1000;  // CUPTI: kBytes per second
  row.multiprocessors = device.numMultiprocessors;
  row.compute_major = device.computeCapabilityMajor;
  row.compute_minor = device.computeCapabilityMinor;
  stream_->builder.DefineDevice(row);
}

}  // namespace gpuprobe::injector
