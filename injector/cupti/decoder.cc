#include "injector/cupti/decoder.h"

#include <cstring>

#include "injector/recording.h"
#include "injector/stream/lock.h"
#include "injector/stream/losses.h"
#include "injector/stream/self_report.h"

namespace gpuprobe::injector {

namespace {

// Records gathered before the lock is taken: they are still in the first cache when they are decoded.
constexpr uint32_t kChunk = 64;
constexpr uint32_t kVersionWithGraphNodes = 13;  // CUDA 11.0: Kernel5, Memcpy3, MemcpyPtoP2, Memset2

bool ValidTimes(uint64_t start_ns, uint64_t end_ns) noexcept {
  if (start_ns != 0 && end_ns >= start_ns) return true;
  CountLoss(wire::LossReason::kLossInvalidTimestamp);
  return false;
}

// Also false, and counted, for what nobody asked to have recorded.
bool Usable(uint64_t start_ns, uint64_t end_ns) noexcept {
  if (!ValidTimes(start_ns, end_ns)) return false;
  if (recording.Holds(start_ns)) return true;
  CountSelf(SelfCounter::kOutsideWindow);
  return false;
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

// CUPTI writes all ones where a wait has no stream or event.
uint32_t IdOrZero(uint32_t id) noexcept { return id == CUPTI_SYNCHRONIZATION_INVALID_VALUE ? 0 : id; }

template <typename Record>
const Record& As(const CUpti_Activity* record) noexcept {
  return *reinterpret_cast<const Record*>(record);
}

bool IsKernel(const CUpti_Activity* record) noexcept {
  return record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL;
}

}  // namespace

bool Decoder::HasGraphNodes() const noexcept { return api_->version >= kVersionWithGraphNodes; }

// Word `i` of the part of a kernel record that says where it ran and in what shape: device and context,
// stream and grid, block, static shared memory. Read where it lies.
inline uint64_t SiteWord(const CUpti_ActivityKernel4& kernel, size_t i) noexcept {
  static_assert(offsetof(CUpti_ActivityKernel4, dynamicSharedMemory) -
                    offsetof(CUpti_ActivityKernel4, deviceId) ==
                5 * sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, reinterpret_cast<const char*>(&kernel.deviceId) + i * sizeof(word), sizeof(word));
  return word;
}

// The same few hundred sites come again and again: most records find theirs by comparing 44 bytes where they
// lie. A site has two places.
inline uint32_t Decoder::PairOf(const CUpti_ActivityKernel4& kernel) noexcept {
  const uint64_t shape = (SiteWord(kernel, 1) * 0x9fb21c651e98df25u) ^
                         (SiteWord(kernel, 2) * 0xa0761d6478bd642fu) ^
                         ((SiteWord(kernel, 3) + SiteWord(kernel, 0)) * 0xe7037ed1a0b428dbu);
  const uint64_t rest = reinterpret_cast<uintptr_t>(kernel.name) ^ SiteWord(kernel, 4) ^
                        static_cast<uint32_t>(kernel.dynamicSharedMemory);
  return 2 * static_cast<uint32_t>(((shape ^ rest) * 0x9e3779b97f4a7c15u) >> (64 - kSitePairBits));
}

inline bool Decoder::Matches(const CachedSite& cached, const CUpti_ActivityKernel4& kernel) noexcept {
  uint64_t difference = reinterpret_cast<uintptr_t>(cached.name) ^ reinterpret_cast<uintptr_t>(kernel.name);
  for (size_t i = 0; i < 5; ++i) difference |= cached.words[i] ^ SiteWord(kernel, i);
  difference |= cached.last ^ static_cast<uint32_t>(kernel.dynamicSharedMemory);
  difference |= static_cast<uint64_t>(cached.registers_per_thread ^ kernel.registersPerThread);
  return difference == 0;
}

// Clearing keeps an entry of an epoch that was given out 65,536 buffers ago from being taken for a current
// one; twice as often as needed, for threads that are still at an old buffer.
uint32_t Decoder::NextEpoch() noexcept {
  const Lock lock(stream_->mutex);
  ++epoch_;
  if ((epoch_ & 0x7fff) == 0) {
    if (site_cache_.data() != nullptr) std::memset(site_cache_.data(), 0, kCachedSites * sizeof(CachedSite));
    ++epoch_;
  }
  return epoch_;
}

void Decoder::DecodeBuffer(uint8_t* buffer, size_t valid_bytes) noexcept {
  if (buffer == nullptr || valid_bytes == 0) return;
  const uint32_t epoch = NextEpoch();
  CUpti_Activity* record = nullptr;
  bool more = true;
  while (more) {
    const CUpti_Activity* records[kChunk];
    uint32_t count = 0;
    while (count < kChunk) {
      const CUptiResult result = api_->ActivityGetNextRecord(buffer, valid_bytes, &record);
      if (result != CUPTI_SUCCESS) {
        more = false;
        if (result == CUPTI_ERROR_INVALID_KIND) CountUnknown(0);
        break;
      }
      // The rest of a kernel record, which is three lines long.
      __builtin_prefetch(reinterpret_cast<const char*>(record) + 64);
      __builtin_prefetch(reinterpret_cast<const char*>(record) + 128);
      records[count++] = record;
    }
    if (count > 0) Decode(records, count, epoch);
  }
}

void Decoder::Decode(const CUpti_Activity* const* records, uint32_t count, uint32_t epoch) noexcept {
  // First where the sites are, all of them, so that their cache lines are on their way at once.
  CachedSite* cache = cached_sites();
  uint32_t pairs[kChunk];
  for (uint32_t i = 0; i < count && cache != nullptr; ++i) {
    if (!IsKernel(records[i])) continue;
    pairs[i] = PairOf(As<CUpti_ActivityKernel4>(records[i]));
    __builtin_prefetch(cache + pairs[i]);
  }
  const auto short_epoch = static_cast<uint16_t>(epoch);
  const bool graph_nodes = HasGraphNodes();
  const Lock lock(stream_->mutex);
  BatchBuilder& builder = stream_->builder;
  BatchBuilder::KernelWriter kernels = builder.OpenKernels(count);
  for (uint32_t i = 0; i < count; ++i) {
    const CUpti_Activity* record = records[i];
    if (!IsKernel(record)) {
      builder.CloseKernels(kernels);
      DecodeOther(record);
      kernels = builder.OpenKernels(count - i);
      continue;
    }
    const auto& kernel = As<CUpti_ActivityKernel4>(record);
    if (!Usable(kernel.start, kernel.end)) continue;
    const CachedSite* cached = cache == nullptr ? nullptr : cache + pairs[i];
    uint32_t site = 0;
    if (cached != nullptr && cached[0].epoch == short_epoch && Matches(cached[0], kernel)) {
      site = cached[0].site;
    } else if (cached != nullptr && cached[1].epoch == short_epoch && Matches(cached[1], kernel)) {
      site = cached[1].site;
    } else {
      builder.CloseKernels(kernels);
      site = LookUpSite(kernel, epoch);
      kernels = builder.OpenKernels(count - i);
    }
    kernels.Add(kernel.start, kernel.end, site, kernel.correlationId,
                graph_nodes ? As<CUpti_ActivityKernel5>(record).graphNodeId : 0);
  }
  builder.CloseKernels(kernels);
}

void Decoder::DecodeOther(const CUpti_Activity* record) noexcept {
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
    default:
      CountLoss(wire::LossReason::kLossUnknownRecord);
      stream_->builder.CountUnknownKind(static_cast<uint32_t>(record->kind));
      break;
  }
}

void Decoder::CountUnknown(uint32_t kind) noexcept {
  CountLoss(wire::LossReason::kLossUnknownRecord);
  const Lock lock(stream_->mutex);
  stream_->builder.CountUnknownKind(kind);
}

void Decoder::Init() noexcept { site_cache_.Map(kCachedSites * sizeof(CachedSite)); }

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

// The first record of a site in a buffer, or in the process: the name's text has to be looked at.
uint32_t Decoder::LookUpSite(const CUpti_ActivityKernel4& kernel, uint32_t epoch) noexcept {
  const uint32_t name_id = stream_->builder.KernelName(kernel.name, epoch);
  if (cached_sites() == nullptr) return InternSite(kernel, name_id);
  CachedSite* pair = cached_sites() + PairOf(kernel);
  for (CachedSite* cached : {pair, pair + 1}) {
    if (cached->epoch == 0 || cached->name_id != name_id || !Matches(*cached, kernel)) continue;
    cached->epoch = static_cast<uint16_t>(epoch);
    return cached->site;
  }
  // A pointer that means another text now must not be found under its old one.
  if (!Matches(pair[0], kernel)) pair[1] = pair[0];
  pair[0].name = kernel.name;
  for (size_t i = 0; i < 5; ++i) pair[0].words[i] = SiteWord(kernel, i);
  pair[0].last = static_cast<uint32_t>(kernel.dynamicSharedMemory);
  pair[0].site = InternSite(kernel, name_id);
  pair[0].name_id = name_id;
  pair[0].epoch = static_cast<uint16_t>(epoch);
  pair[0].registers_per_thread = kernel.registersPerThread;
  return pair[0].site;
}

void Decoder::DecodeCopy(const CUpti_Activity* record) noexcept {
  const auto& copy = As<CUpti_ActivityMemcpy>(record);
  if (!Usable(copy.start, copy.end)) return;
  stream_->builder.AddCopy({.start_ns = copy.start,
                            .end_ns = copy.end,
                            .bytes = copy.bytes,
                            .graph_node = HasGraphNodes() ? As<CUpti_ActivityMemcpy3>(record).graphNodeId : 0,
                            .direction = Direction(copy.copyKind),
                            .src_memory = Memory(copy.srcKind),
                            .dst_memory = Memory(copy.dstKind),
                            .device = copy.deviceId,
                            .context = copy.contextId,
                            .stream = copy.streamId,
                            .correlation = copy.correlationId,
                            .asynchronous = (copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0,
                            .peer_device_plus_one = 0});
}

void Decoder::DecodePeerCopy(const CUpti_Activity* record) noexcept {
  const auto& copy = As<CUpti_ActivityMemcpyPtoP>(record);
  if (!Usable(copy.start, copy.end)) return;
  const uint32_t peer = copy.deviceId == copy.srcDeviceId ? copy.dstDeviceId : copy.srcDeviceId;
  stream_->builder.AddCopy(
      {.start_ns = copy.start,
       .end_ns = copy.end,
       .bytes = copy.bytes,
       .graph_node = HasGraphNodes() ? As<CUpti_ActivityMemcpyPtoP2>(record).graphNodeId : 0,
       .direction = wire::CopyDirection::kCopyDirectionP2p,
       .src_memory = Memory(copy.srcKind),
       .dst_memory = Memory(copy.dstKind),
       .device = copy.deviceId,
       .context = copy.contextId,
       .stream = copy.streamId,
       .correlation = copy.correlationId,
       .asynchronous = (copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0,
       .peer_device_plus_one = peer + 1});
}

void Decoder::DecodeMemset(const CUpti_Activity* record) noexcept {
  const auto& memset_record = As<CUpti_ActivityMemset>(record);
  if (!Usable(memset_record.start, memset_record.end)) return;
  stream_->builder.AddMemset(
      {.start_ns = memset_record.start,
       .end_ns = memset_record.end,
       .bytes = memset_record.bytes,
       .graph_node = HasGraphNodes() ? As<CUpti_ActivityMemset2>(record).graphNodeId : 0,
       .value = memset_record.value,
       .memory = Memory(memset_record.memoryKind),
       .device = memset_record.deviceId,
       .context = memset_record.contextId,
       .stream = memset_record.streamId,
       .correlation = memset_record.correlationId});
}

void Decoder::DecodeSync(const CUpti_Activity* record) noexcept {
  const auto& sync = As<CUpti_ActivitySynchronization>(record);
  if (!Usable(sync.start, sync.end)) return;
  stream_->builder.AddSync({.start_ns = sync.start,
                            .end_ns = sync.end,
                            .what = Sync(static_cast<uint32_t>(sync.type)),
                            .context = IdOrZero(sync.contextId),
                            .stream = IdOrZero(sync.streamId),
                            .event = IdOrZero(sync.cudaEventId),
                            .correlation = sync.correlationId});
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
