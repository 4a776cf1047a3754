#include "injector/rows/batch_builder.h"

#include <algorithm>
#include <ctime>

#include "injector/base/losses.h"
#include "injector/core/event_names.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/launch_cost.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"
#include "injector/rows/frames.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kDefinitionBytes = size_t{2} << 20;
constexpr size_t kClosedLaunchBytes = 6 * kColumnBytes + 256 * kFieldOverhead;
constexpr size_t kMaxNameOnWire = size_t{16} << 10;  // longer mangled names are cut
constexpr size_t kFixedPartBytes = 4096;             // clock, losses, self report

template <typename Table>
void EncodeTable(WireWriter& batch, wire::BatchTag tag, const Table& table) noexcept {
  if (table.rows == 0) return;
  WireWriter message(batch, Number(tag));
  table.Encode(message);
}

// A table of rows that are all zero has no column left; readers would see no row. One explicit zero column
// keeps the count.
template <typename Table, typename Tag>
void KeepCount(Table& table, Tag tag) noexcept {
  table[tag].any |= 1;
}

}  // namespace

bool BatchBuilder::Init(SendQueue* queue) noexcept {
  queue_ = queue;
  constexpr size_t kTotalColumns =
      decltype(kernels_)::kCount + decltype(copies_)::kCount + decltype(memsets_)::kCount +
      decltype(syncs_)::kCount + decltype(launches_)::kCount + decltype(ranges_)::kCount +
      decltype(allocations_)::kCount + decltype(allocator_levels_)::kCount +
      decltype(allocator_refusals_)::kCount + decltype(tensors_)::kCount + decltype(collectives_)::kCount +
      decltype(plans_)::kCount + decltype(graph_runs_)::kCount + decltype(recorded_steps_)::kCount +
      decltype(range_payloads_)::kCount + decltype(small_allocations_)::kCount +
      decltype(pool_levels_)::kCount;
  if (!memory_.Map(kTotalColumns * kColumnBytes + kDefinitionBytes + kClosedLaunchBytes) || !strings_.Init())
    return false;
  history_.Init();
  char* memory = memory_.data();
  memory = kernels_.Carve(memory);
  memory = copies_.Carve(memory);
  memory = memsets_.Carve(memory);
  memory = syncs_.Carve(memory);
  memory = launches_.Carve(memory);
  memory = ranges_.Carve(memory);
  memory = allocations_.Carve(memory);
  memory = allocator_levels_.Carve(memory);
  memory = allocator_refusals_.Carve(memory);
  memory = tensors_.Carve(memory);
  memory = collectives_.Carve(memory);
  memory = plans_.Carve(memory);
  memory = graph_runs_.Carve(memory);
  memory = recorded_steps_.Carve(memory);
  memory = range_payloads_.Carve(memory);
  memory = small_allocations_.Carve(memory);
  memory = pool_levels_.Carve(memory);
  definitions_ = {memory, kDefinitionBytes};
  closed_launches_ = {memory + kDefinitionBytes, kClosedLaunchBytes};
  StartBatch();
  return true;
}

void BatchBuilder::StartBatch() noexcept {
  base_ns_ = NowNs();
  kernels_.Clear(base_ns_);
  copies_.Clear(base_ns_);
  memsets_.Clear(base_ns_);
  syncs_.Clear(base_ns_);
  launches_.Clear(base_ns_);
  ranges_.Clear(base_ns_);
  allocations_.Clear(base_ns_);
  allocator_levels_.Clear(base_ns_);
  allocator_refusals_.Clear(base_ns_);
  tensors_.Clear(base_ns_);
  collectives_.Clear(base_ns_);
  plans_.Clear(base_ns_);
  graph_runs_.Clear(base_ns_);
  recorded_steps_.Clear(base_ns_);
  range_payloads_.Clear(base_ns_);
  small_allocations_.Clear(base_ns_);
  pool_levels_.Clear(base_ns_);
  closed_launches_.size = 0;
  launch_rows_ = 0;
  launch_thread_ = 0;
}

uint32_t BatchBuilder::rows() const noexcept {
  return kernels_.rows + copies_.rows + memsets_.rows + syncs_.rows + launch_rows_ + ranges_.rows +
         allocations_.rows + allocator_levels_.rows + allocator_refusals_.rows + tensors_.rows +
         collectives_.rows + plans_.rows + graph_runs_.rows + recorded_steps_.rows + range_payloads_.rows +
         small_allocations_.rows + pool_levels_.rows + pools_.changed();
}

size_t BatchBuilder::MaxEncodedBytes() const noexcept {
  return kFixedPartBytes + kernels_.MaxEncodedBytes() + copies_.MaxEncodedBytes() +
         memsets_.MaxEncodedBytes() + syncs_.MaxEncodedBytes() + ranges_.MaxEncodedBytes() +
         allocations_.MaxEncodedBytes() + allocator_levels_.MaxEncodedBytes() +
         allocator_refusals_.MaxEncodedBytes() + tensors_.MaxEncodedBytes() + collectives_.MaxEncodedBytes() +
         plans_.MaxEncodedBytes() + graph_runs_.MaxEncodedBytes() + recorded_steps_.MaxEncodedBytes() +
         range_payloads_.MaxEncodedBytes() + small_allocations_.MaxEncodedBytes() +
         pool_levels_.MaxEncodedBytes() + closed_launches_.size + definitions_.size;
}

// --- definitions
// -----------------------------------------------------------------------------------------------------------

// The definitions of a batch that cannot be queued pile up; when even they have no room, the new one is lost.
WireBuffer& BatchBuilder::RoomForDefinition(size_t bytes) noexcept {
  if (definitions_.room() < bytes) Seal();
  definitions_.overflowed = false;
  return definitions_;
}

void BatchBuilder::CommitDefinition(size_t size_before) noexcept {
  if (!definitions_.overflowed) return;
  definitions_.size = size_before;
  definitions_.overflowed = false;
  CountLoss(wire::LossReason::kLossDefinitionsFull);
}

uint32_t BatchBuilder::String(std::string_view text) noexcept {
  const Interned interned = strings_.Intern(text);
  if (interned.id == 0 && !text.empty()) CountLoss(wire::LossReason::kLossDefinitionsFull);
  if (!interned.is_new) return interned.id;
  const size_t shown = text.size() < kMaxNameOnWire ? text.size() : kMaxNameOnWire;
  WireBuffer& out = RoomForDefinition(shown + 3 * kFieldOverhead);
  const size_t before = out.size;
  {
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kStrings));
    def.add_uint32(Number(wire::StringDefTag::kId), interned.id);
    def.add_bytes(Number(wire::StringDefTag::kValue), text.data(), shown);
  }
  CommitDefinition(before);
  return interned.id;
}

uint32_t BatchBuilder::KernelName(const char* name, uint32_t epoch) noexcept {
  const Interned interned = strings_.InternPointer(name, epoch);
  if (!interned.is_new) return interned.id;
  const size_t length = strnlen(name, kMaxNameOnWire);
  WireBuffer& out = RoomForDefinition(length + 3 * kFieldOverhead);
  const size_t before = out.size;
  {
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kStrings));
    def.add_uint32(Number(wire::StringDefTag::kId), interned.id);
    def.add_bytes(Number(wire::StringDefTag::kValue), name, length);
  }
  CommitDefinition(before);
  return interned.id;
}

uint32_t BatchBuilder::Site(const SiteKey& key) noexcept {
  const Interned interned = sites_.Intern(key);
  if (interned.id == 0) CountLoss(wire::LossReason::kLossDefinitionsFull);
  if (!interned.is_new) return interned.id;
  WireBuffer& out = RoomForDefinition(16 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::KernelSiteTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kKernelSites));
    def.add_uint32(Number(Tag::kId), interned.id);
    def.add_uint32(Number(Tag::kName), key.name);
    def.add_uint32(Number(Tag::kDevice), key.device);
    def.add_uint32(Number(Tag::kContext), key.context);
    def.add_uint32(Number(Tag::kStream), key.stream);
    def.add_uint32(Number(Tag::kGridX), key.grid[0]);
    def.add_uint32(Number(Tag::kGridY), key.grid[1]);
    def.add_uint32(Number(Tag::kGridZ), key.grid[2]);
    def.add_uint32(Number(Tag::kBlockX), key.block[0]);
    def.add_uint32(Number(Tag::kBlockY), key.block[1]);
    def.add_uint32(Number(Tag::kBlockZ), key.block[2]);
    def.add_uint32(Number(Tag::kStaticSharedBytes), key.static_shared_bytes);
    def.add_uint32(Number(Tag::kDynamicSharedBytes), key.dynamic_shared_bytes);
    def.add_uint32(Number(Tag::kRegistersPerThread), key.registers_per_thread);
  }
  CommitDefinition(before);
  return interned.id;
}

void BatchBuilder::DefineThread(uint32_t id, uint32_t tid, std::string_view name, bool main,
                                std::string_view given_name) noexcept {
  WireBuffer& out = RoomForDefinition(name.size() + given_name.size() + 5 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::ThreadDefTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kThreads));
    def.add_uint32(Number(Tag::kId), id);
    def.add_uint32(Number(Tag::kTid), tid);
    def.add_bytes(Number(Tag::kName), name.data(), name.size());
    def.add_uint32(Number(Tag::kMain), main ? 1 : 0);
    if (!given_name.empty()) {
      def.add_bytes(Number(Tag::kGivenName), given_name.data(), given_name.size());
    }
  }
  CommitDefinition(before);
}

void BatchBuilder::DefineDevice(const DeviceRow& device) noexcept {
  // As nvidia-smi prints it: GPU-8-4-4-4-12.
  static constexpr char kHex[] = "0123456789abcdef";
  char uuid[40] = {'G', 'P', 'U', '-'};
  size_t length = 4;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid[length++] = '-';
    uuid[length++] = kHex[device.uuid[i] >> 4];
    uuid[length++] = kHex[device.uuid[i] & 15];
  }
  WireBuffer& out = RoomForDefinition(device.name.size() + 12 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::DeviceTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kDevices));
    def.add_uint32(Number(Tag::kOrdinal), device.ordinal);
    def.add_bytes(Number(Tag::kName), device.name.data(), device.name.size());
    def.add_bytes(Number(Tag::kUuid), uuid, length);
    def.add_uint64(Number(Tag::kMemoryBytes), device.memory_bytes);
    def.add_uint32(Number(Tag::kMultiprocessors), device.multiprocessors);
    def.add_uint32(Number(Tag::kComputeMajor), device.compute_major);
    def.add_uint32(Number(Tag::kComputeMinor), device.compute_minor);
    def.add_uint64(Number(Tag::kMemoryBandwidthBytesPerS), device.memory_bandwidth_bytes_per_s);
  }
  CommitDefinition(before);
}

void BatchBuilder::DefineVersions(const VersionsRow& versions) noexcept {
  WireBuffer& out = RoomForDefinition(versions.cupti_path.size() + 7 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::VersionsTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kVersions));
    def.add_int32(Number(Tag::kCudaDriver), versions.cuda_driver);
    def.add_int32(Number(Tag::kCudaRuntime), versions.cuda_runtime);
    def.add_uint32(Number(Tag::kCupti), versions.cupti);
    def.add_int32(Number(Tag::kNccl), versions.nccl);
    def.add_bytes(Number(Tag::kCuptiPath), versions.cupti_path.data(), versions.cupti_path.size());
    def.add_uint32(Number(Tag::kCuptiPrecautions), versions.cupti_precautions);
  }
  CommitDefinition(before);
}

void BatchBuilder::DefineCommunicator(const CommunicatorEvent& event, uint32_t made_by) noexcept {
  WireBuffer& out = RoomForDefinition(11 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::CommunicatorTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kCommunicators));
    def.add_uint32(Number(Tag::kId), event.id);
    def.add_fixed64(Number(Tag::kHash), event.hash);
    def.add_uint32(Number(Tag::kParent), event.parent);
    def.add_int32(Number(Tag::kRank), event.rank);
    def.add_int32(Number(Tag::kRanks), event.ranks);
    def.add_int32(Number(Tag::kDevice), event.device);
    def.add_enum(Number(Tag::kState), event.state);
    def.add_fixed64(Number(Tag::kTimeNs), event.time_ns);
    if (made_by != 0) def.add_uint32(Number(Tag::kMadeBy), made_by);
  }
  CommitDefinition(before);
}

void BatchBuilder::DefineCategory(uint32_t domain, uint32_t category, uint32_t name) noexcept {
  WireBuffer& out = RoomForDefinition(3 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::RangeCategoryTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kRangeCategories));
    def.add_uint32(Number(Tag::kDomain), domain);
    def.add_uint32(Number(Tag::kCategory), category);
    def.add_uint32(Number(Tag::kName), name);
  }
  CommitDefinition(before);
}

void BatchBuilder::DefineObjectName(const ObjectNameEvent& event, uint32_t name) noexcept {
  WireBuffer& out = RoomForDefinition(4 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::ObjectNameTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kObjectNames));
    def.add_enum(Number(Tag::kKind), static_cast<int32_t>(event.kind));
    def.add_uint32(Number(Tag::kContext), event.context);
    def.add_uint32(Number(Tag::kId), event.id);
    def.add_uint32(Number(Tag::kName), name);
  }
  CommitDefinition(before);
}

void BatchBuilder::DefineNcclIdentity(int32_t rank, int32_t world_size) noexcept {
  WireBuffer& out = RoomForDefinition(2 * kFieldOverhead);
  const size_t before = out.size;
  {
    using Tag = wire::NcclIdentityTag;
    WireWriter fields(out);
    WireWriter def(fields, Number(wire::BatchTag::kNcclIdentity));
    def.add_int32(Number(Tag::kRank), rank);
    def.add_int32(Number(Tag::kWorldSize), world_size);
  }
  CommitDefinition(before);
}

// --- records
// ---------------------------------------------------------------------------------------------------------------

void BatchBuilder::AddCopy(const CopyRow& row) noexcept {
  if (copies_.rows == kMaxRows) Seal();
  using Tag = wire::CopiesTag;
  copies_.PutInterval(Tag::kStartDelta, Tag::kDuration, row.start_ns, row.end_ns);
  copies_[Tag::kBytes].Put(row.bytes);
  copies_[Tag::kDirection].Put(static_cast<uint64_t>(row.direction));
  copies_[Tag::kSrcMemory].Put(static_cast<uint64_t>(row.src_memory));
  copies_[Tag::kDstMemory].Put(static_cast<uint64_t>(row.dst_memory));
  copies_[Tag::kDevice].Put(row.device);
  copies_[Tag::kContext].Put(row.context);
  copies_[Tag::kStream].Put(row.stream);
  copies_[Tag::kCorrelationDelta].PutDelta(row.correlation);
  copies_[Tag::kGraphNodeDelta].PutDelta(row.graph_node);
  copies_[Tag::kAsynchronous].Put(row.asynchronous ? 1 : 0);
  copies_[Tag::kPeerDevice].Put(row.peer_device_plus_one);
  ++copies_.rows;
}

void BatchBuilder::AddMemset(const MemsetRow& row) noexcept {
  if (memsets_.rows == kMaxRows) Seal();
  using Tag = wire::MemsetsTag;
  memsets_.PutInterval(Tag::kStartDelta, Tag::kDuration, row.start_ns, row.end_ns);
  memsets_[Tag::kBytes].Put(row.bytes);
  memsets_[Tag::kValue].Put(row.value);
  memsets_[Tag::kMemory].Put(static_cast<uint64_t>(row.memory));
  memsets_[Tag::kDevice].Put(row.device);
  memsets_[Tag::kContext].Put(row.context);
  memsets_[Tag::kStream].Put(row.stream);
  memsets_[Tag::kCorrelationDelta].PutDelta(row.correlation);
  memsets_[Tag::kGraphNodeDelta].PutDelta(row.graph_node);
  ++memsets_.rows;
}

void BatchBuilder::AddSync(const SyncRow& row) noexcept {
  if (syncs_.rows == kMaxRows) Seal();
  using Tag = wire::SyncsTag;
  syncs_.PutInterval(Tag::kStartDelta, Tag::kDuration, row.start_ns, row.end_ns);
  syncs_[Tag::kWhat].Put(static_cast<uint64_t>(row.what));
  syncs_[Tag::kContext].Put(row.context);
  syncs_[Tag::kStream].Put(row.stream);
  syncs_[Tag::kEvent].Put(row.event);
  syncs_[Tag::kCorrelationDelta].PutDelta(row.correlation);
  ++syncs_.rows;
}

// Moves the launches of the thread so far out of the columns, so that another thread's can go in.
void BatchBuilder::CloseLaunches() noexcept {
  if (launches_.rows == 0) return;
  KeepCount(launches_, wire::LaunchesTag::kTimeDelta);
  {
    WireWriter fields(closed_launches_);
    WireWriter message(fields, Number(wire::BatchTag::kLaunches));
    message.add_uint32(Number(wire::LaunchesTag::kThread), launch_thread_);
    launches_.Encode(message);
  }
  launches_.Clear(base_ns_);
}

void BatchBuilder::AddLaunch(uint32_t thread, const LaunchEvent& event) noexcept {
  if (thread != launch_thread_) {
    CloseLaunches();
    launch_thread_ = thread;
    if (closed_launches_.room() < 8 * kFieldOverhead + 6 * size_t{kMaxRows - launch_rows_} * 10) Seal();
  }
  if (launch_rows_ == kMaxRows) Seal();
  launch_thread_ = thread;
  using Tag = wire::LaunchesTag;
  launches_.PutTime(Tag::kTimeDelta, event.time_ns);
  launches_[Tag::kCorrelationDelta].PutDelta(event.correlation);
  launches_[Tag::kRangeDelta].PutDelta(event.range_id);
  launches_[Tag::kFallbackRangeDelta].PutDelta(event.range_id == 0 ? event.fallback_range_id : 0);
  launches_[Tag::kGraph].Put(event.graph);
  launches_[Tag::kMayLackRecord].Put(event.may_lack_record);
  ++launches_.rows;
  ++launch_rows_;
}

void BatchBuilder::AddRange(const RangeRow& row) noexcept {
  if (ranges_.rows == kMaxRows) Seal();
  using Tag = wire::RangesTag;
  ranges_.PutInterval(Tag::kStartDelta, Tag::kDuration, row.start_ns, row.end_ns);
  ranges_[Tag::kIdDelta].PutDelta(row.id);
  ranges_[Tag::kParentDelta].PutDelta(row.parent_id);
  ranges_[Tag::kName].Put(row.name);
  ranges_[Tag::kDomain].Put(row.domain);
  ranges_[Tag::kThread].Put(row.thread);
  ranges_[Tag::kKind].Put(static_cast<uint64_t>(row.kind));
  ranges_[Tag::kUnclosed].Put(row.unclosed ? 1 : 0);
  ranges_[Tag::kCategory].Put(row.category);
  ranges_[Tag::kColor].Put(row.color);
  ranges_[Tag::kPayload].Put(row.payload);
  ranges_[Tag::kPayloadKind].Put(row.payload_kind);
  ++ranges_.rows;
}

void BatchBuilder::AddAllocation(const AllocationEvent& event, uint32_t thread) noexcept {
  if (allocations_.rows == kMaxRows) Seal();
  using Tag = wire::AllocationsTag;
  allocations_.PutTime(Tag::kTimeDelta, event.time_ns);
  allocations_[Tag::kOp].Put(event.op);
  allocations_[Tag::kMemory].Put(event.memory);
  allocations_[Tag::kAddressDelta].PutDelta(event.address);
  allocations_[Tag::kBytes].Put(event.bytes);
  allocations_[Tag::kDevice].Put(event.device < 0 ? 0 : static_cast<uint32_t>(event.device));
  allocations_[Tag::kFailed].Put(event.failed);
  allocations_[Tag::kThread].Put(thread);
  allocations_[Tag::kRangeDelta].PutDelta(event.range_id);
  const bool began = event.began_ns != 0 && event.began_ns < event.time_ns;
  allocations_[Tag::kDuration].Put(began ? event.time_ns - event.began_ns : 0);
  allocations_[Tag::kByNccl].Put(event.by_nccl);
  ++allocations_.rows;
}

void BatchBuilder::AddSmallAllocations(const SmallRun& run) noexcept {
  if (small_allocations_.rows == kMaxRows) Seal();
  using Tag = wire::SmallAllocationsTag;
  small_allocations_.PutTime(Tag::kTimeDelta, run.highest_ns());
  small_allocations_[Tag::kDuration].Put(run.end_ns() - run.highest_ns());
  small_allocations_[Tag::kMemory].Put(run.memory());
  small_allocations_[Tag::kDevice].Put(run.device() < 0 ? 0 : static_cast<uint32_t>(run.device()));
  small_allocations_[Tag::kAllocations].Put(run.allocations());
  small_allocations_[Tag::kFrees].Put(run.frees());
  small_allocations_[Tag::kRise].Put(run.rise_bytes());
  small_allocations_[Tag::kChange].PutSigned(run.change_bytes());
  small_allocations_[Tag::kRangeDelta].PutDelta(run.range_id());
  const auto since = [&run](const SmallRun::Overlap& overlap) noexcept {
    return overlap.before_bytes == 0 ? 0 : run.end_ns() - overlap.since_ns;
  };
  small_allocations_[Tag::kOverlapping].Put(run.obtained().bytes);
  small_allocations_[Tag::kOverlappingBefore].Put(run.obtained().before_bytes);
  small_allocations_[Tag::kOverlappingSince].Put(since(run.obtained()));
  small_allocations_[Tag::kOverlappingFreed].Put(run.released().bytes);
  small_allocations_[Tag::kOverlappingFreedBefore].Put(run.released().before_bytes);
  small_allocations_[Tag::kOverlappingFreedSince].Put(since(run.released()));
  ++small_allocations_.rows;
}

void BatchBuilder::PutPoolLevels() noexcept {
  using Tag = wire::PoolLevelsTag;
  static_assert(PoolLevels::kMaxPools <= kMaxRows);
  pools_.TakeChanged([this](const PoolLevel& level) noexcept {
    pool_levels_.PutTime(Tag::kTimeDelta, level.time_ns);
    pool_levels_[Tag::kPool].Put(level.pool);
    pool_levels_[Tag::kDevice].Put(level.device);
    pool_levels_[Tag::kUsed].Put(level.used_bytes);
    pool_levels_[Tag::kReserved].Put(level.reserved_bytes);
    pool_levels_[Tag::kPeakUsed].Put(level.peak_used_bytes);
    pool_levels_[Tag::kPeakUsedDelta].PutSigned(static_cast<int64_t>(level.peak_used_ns - level.time_ns));
    pool_levels_[Tag::kPeakReserved].Put(level.peak_reserved_bytes);
    pool_levels_[Tag::kPeakReservedDelta].PutSigned(
        static_cast<int64_t>(level.peak_reserved_ns - level.time_ns));
    pool_levels_[Tag::kReleaseThreshold].Put(level.release_threshold_bytes);
    pool_levels_[Tag::kTrims].Put(level.trims);
    pool_levels_[Tag::kState].Put(level.destroyed ? 1 : 0);
    ++pool_levels_.rows;
  });
}

void BatchBuilder::AddAllocatorLevel(const AllocatorLevelEvent& event) noexcept {
  if (allocator_levels_.rows == kMaxRows) Seal();
  using Tag = wire::AllocatorLevelsTag;
  allocator_levels_.PutTime(Tag::kTimeDelta, event.time_ns);
  allocator_levels_[Tag::kDevice].Put(static_cast<uint32_t>(event.device));
  allocator_levels_[Tag::kAllocated].Put(event.allocated_bytes);
  allocator_levels_[Tag::kReserved].Put(event.reserved_bytes);
  allocator_levels_[Tag::kPeakAllocated].Put(event.peak_allocated_bytes);
  allocator_levels_[Tag::kPeakReserved].Put(event.peak_reserved_bytes);
  ++allocator_levels_.rows;
}

void BatchBuilder::AddAllocatorRefusal(const AllocatorRefusalEvent& event) noexcept {
  if (allocator_refusals_.rows == kMaxRows) Seal();
  using Tag = wire::AllocatorRefusalsTag;
  allocator_refusals_.PutTime(Tag::kTimeDelta, event.time_ns);
  allocator_refusals_[Tag::kDevice].Put(static_cast<uint32_t>(event.device));
  allocator_refusals_[Tag::kAsked].Put(event.asked_bytes);
  allocator_refusals_[Tag::kAllocated].Put(event.allocated_bytes);
  allocator_refusals_[Tag::kReserved].Put(event.reserved_bytes);
  allocator_refusals_[Tag::kRangeDelta].PutDelta(event.range_id);
  ++allocator_refusals_.rows;
}

void BatchBuilder::AddTensor(const TensorEvent& event) noexcept {
  if (tensors_.rows == kMaxRows) Seal();
  using Tag = wire::TensorsTag;
  tensors_.PutTime(Tag::kTimeDelta, event.time_ns);
  tensors_[Tag::kAddressDelta].PutDelta(event.address);
  tensors_[Tag::kBytes].PutSigned(event.bytes);
  tensors_[Tag::kDevice].Put(static_cast<uint32_t>(event.device));
  tensors_[Tag::kRangeDelta].PutDelta(event.range_id);
  ++tensors_.rows;
}

void BatchBuilder::AddGraphRun(const GraphRunRow& row) noexcept {
  if (graph_runs_.rows == kMaxRows) Seal();
  using Tag = wire::GraphRunsTag;
  graph_runs_.PutInterval(Tag::kStartDelta, Tag::kDuration, row.start_ns, row.end_ns);
  graph_runs_[Tag::kGraph].Put(row.graph);
  graph_runs_[Tag::kDevice].Put(row.device);
  graph_runs_[Tag::kContext].Put(row.context);
  graph_runs_[Tag::kStream].Put(row.stream);
  graph_runs_[Tag::kCorrelationDelta].PutDelta(row.correlation);
  ++graph_runs_.rows;
}

void BatchBuilder::AddRangePayload(const RangePayloadRow& row) noexcept {
  if (range_payloads_.rows == kMaxRows) Seal();
  using Tag = wire::RangePayloadsTag;
  range_payloads_[Tag::kRangeDelta].PutDelta(row.range_id);
  range_payloads_[Tag::kField].Put(row.field);
  range_payloads_[Tag::kValue].Put(row.value);
  range_payloads_[Tag::kKind].Put(row.kind);
  ++range_payloads_.rows;
}

void BatchBuilder::AddRecordedStep(const RecordedStepRow& row) noexcept {
  if (recorded_steps_.rows == kMaxRows) Seal();
  using Tag = wire::RecordedStepsTag;
  const auto before = [&row](uint64_t time_ns) { return time_ns == 0 ? 0 : row.begin_ns - time_ns; };
  const auto not_after = [&](uint64_t time_ns) { return time_ns > row.begin_ns ? 0 : before(time_ns); };
  recorded_steps_.PutInterval(Tag::kBeginDelta, Tag::kDuration, row.begin_ns, row.end_ns);
  recorded_steps_[Tag::kIndexDelta].PutDelta(row.index);
  recorded_steps_[Tag::kEarlierEnd].PutSigned(static_cast<int64_t>(before(row.earlier_end_ns)));
  recorded_steps_[Tag::kEarlierLaunch].Put(not_after(row.earlier_launch_ns));
  recorded_steps_[Tag::kWaitStart].Put(not_after(row.wait_start_ns));
  recorded_steps_[Tag::kWaitDuration].Put(row.wait_end_ns - row.wait_start_ns);
  ++recorded_steps_.rows;
}

void BatchBuilder::AddCollective(const CollectiveEvent& event, const CollectiveNames& names,
                                 uint32_t thread) noexcept {
  if (collectives_.rows == kMaxRows) Seal();
  using Tag = wire::CollectivesTag;
  collectives_.PutTime(Tag::kIssueDelta, event.issue_ns);
  collectives_[Tag::kHostDuration].Put(event.return_ns > event.issue_ns ? event.return_ns - event.issue_ns
                                                                        : 0);
  collectives_[Tag::kOp].Put(names.op);
  collectives_[Tag::kComm].Put(event.comm);
  collectives_[Tag::kSeqDelta].PutDelta(event.seq);
  collectives_[Tag::kCount].Put(event.count);
  collectives_[Tag::kDatatype].Put(names.datatype);
  collectives_[Tag::kElementBytes].Put(event.element_bytes);
  collectives_[Tag::kRoot].PutSigned(event.root);
  collectives_[Tag::kPeer].PutSigned(event.peer);
  collectives_[Tag::kPlanDelta].PutDelta(event.plan);
  collectives_[Tag::kThread].Put(thread);
  collectives_[Tag::kRangeDelta].PutDelta(event.range_id);
  collectives_[Tag::kSource].Put(event.source);
  collectives_[Tag::kResult].PutSigned(event.result);
  collectives_[Tag::kAlgorithm].Put(names.algorithm);
  collectives_[Tag::kProtocol].Put(names.protocol);
  collectives_[Tag::kChannels].Put(event.channels);
  ++collectives_.rows;
}

void BatchBuilder::AddPlanLaunch(const PlanLaunchEvent& event, uint32_t from_correlation) noexcept {
  if (plans_.rows == kMaxRows) Seal();
  using Tag = wire::PlansTag;
  plans_[Tag::kPlanDelta].PutDelta(event.plan);
  plans_[Tag::kCorrelationDelta].PutDelta(event.correlation);
  plans_[Tag::kGraphNodeDelta].PutDelta(event.graph_node);
  plans_[Tag::kGraph].Put(event.graph);
  plans_[Tag::kFromCorrelation].Put(from_correlation);
  plans_[Tag::kCopy].Put(event.copy);
  ++plans_.rows;
}

// --- sealing
// ---------------------------------------------------------------------------------------------------------------

void BatchBuilder::EncodeHostState(WireWriter& batch) const noexcept {
  using Tag = wire::HostStateTag;
  WireWriter state(batch, Number(wire::BatchTag::kHostState));
  for (size_t i = host_state_.open_range_count; i > 0; --i)
    state.add_uint32(Number(Tag::kOpenRanges), host_state_.open_ranges[i - 1]);
  state.add_uint64(Number(Tag::kIoBytes), host_state_.io_bytes);
  if (host_state_.last_wait_end_ns != 0)
    state.add_fixed64(Number(Tag::kLastWaitEndNs), host_state_.last_wait_end_ns);
  if (host_state_.blocked_in == 0) return;
  state.add_uint32(Number(Tag::kBlockedIn), host_state_.blocked_in);
  state.add_fixed64(Number(Tag::kBlockedSinceNs), host_state_.blocked_since_ns);
}

void BatchBuilder::EncodeSelf(WireWriter& batch) const noexcept {
  using Tag = wire::SelfReportTag;
  const HostCost cost = TotalHostCost();
  WireWriter self(batch, Number(wire::BatchTag::kSelf));
  self.add_uint64(Number(Tag::kHostNs), cost.sampled_ns * kHostCostSampling);
  self.add_uint32(Number(Tag::kHostSampling), kHostCostSampling);
  self.add_uint64(Number(Tag::kHostEvents), cost.events);
  self.add_uint64(Number(Tag::kBackgroundCpuNs), BackgroundCpuNs());
  self.add_uint64(Number(Tag::kBytesSent), BytesSent());
  self.add_uint64(Number(Tag::kRangePopWithoutPush), SelfCount(SelfCounter::kRangePopWithoutPush));
  self.add_uint64(Number(Tag::kRangeEndWithoutStart), SelfCount(SelfCounter::kRangeEndWithoutStart));
  self.add_uint64(Number(Tag::kCuptiErrors), SelfCount(SelfCounter::kCuptiErrors));
  self.add_uint64(Number(Tag::kRelocationsPatched), SelfCount(SelfCounter::kRelocationsPatched));
  self.add_uint64(Number(Tag::kRecords), records_sealed_ + rows());
  self.add_uint64(Number(Tag::kBatches), sequence_);
  self.add_int32(Number(Tag::kLastCuptiError), LastCuptiError());
  self.add_uint64(Number(Tag::kRecordsOutsideWindow), SelfCount(SelfCounter::kOutsideWindow));
  self.add_uint64(Number(Tag::kLeftOutUntilNs), std::max(LeftOutUntilNs(), step_gate.left_out_until_ns()));
  if (step_gate.in_use()) self.add_uint64(Number(Tag::kStepsBegun), step_gate.steps_begun());
  self.add_uint64(Number(Tag::kHostTimeErrorNs), host_clock.max_error_ns());
  self.add_uint64(Number(Tag::kHostClockFallbacks), host_clock.fallbacks());
  for (size_t i = 0; i < unknown_kind_count_; ++i) {
    WireWriter unknown(self, Number(Tag::kUnknownKinds));
    unknown.add_uint32(Number(wire::UnknownKindTag::kKind), unknown_kinds_[i].kind);
    unknown.add_uint64(Number(wire::UnknownKindTag::kRecords), unknown_kinds_[i].records);
  }
  const DetailReport detail = CurrentDetailReport();
  self.add_enum(Number(Tag::kDetailLevel), detail.level);
  self.add_uint64(Number(Tag::kDetailReductions), detail.reductions);
  self.add_uint64(Number(Tag::kReducedNs), detail.reduced_ns);
  self.add_uint64(Number(Tag::kYields), detail.yields);
  self.add_uint64(Number(Tag::kYieldedNs), detail.yielded_ns);
  if (launch_cost.launches() != 0) {
    using CostTag = wire::LaunchCostTag;
    WireWriter launches(self, Number(Tag::kLaunchCost));
    launches.add_uint64(Number(CostTag::kLaunches), launch_cost.launches());
    launches.add_uint64(Number(CostTag::kLaunchNs), launch_cost.launch_ns());
    launches.add_uint64(Number(CostTag::kRecordedLaunches), launch_cost.recorded_launches());
    LaunchCost::Pace pace{};
    if (launch_cost.Compared(&pace)) {
      launches.add_uint64(Number(CostTag::kWithRecordingNs), pace.recorded_ns);
      launches.add_uint64(Number(CostTag::kWithoutRecordingNs), pace.unrecorded_ns);
      launches.add_uint64(Number(CostTag::kDifferenceErrorNs), pace.error_ns);
    }
    launches.add_uint64(Number(CostTag::kCallbacksNs), launch_cost.callbacks_ns());
    launches.add_uint64(Number(CostTag::kUnrecordedLaunches), launch_cost.unrecorded_launches());
  }
  uint32_t imports = 0;
  for (size_t i = 0; event_names.unknown_function != nullptr; ++i) {
    const std::string_view name = event_names.unknown_function(i, &imports);
    if (name.empty()) break;
    WireWriter function(self, Number(Tag::kUnknownFunctions));
    function.add_bytes(Number(wire::UnknownFunctionTag::kName), name.data(), name.size());
    function.add_uint32(Number(wire::UnknownFunctionTag::kImports), imports);
  }
  if (event_names.other_unknown_functions != nullptr) {
    if (const uint32_t others = event_names.other_unknown_functions(); others != 0)
      self.add_uint32(Number(Tag::kOtherUnknownFunctions), others);
  }
  for (size_t i = 0; i < kDirections; ++i) {
    const SmallCopies& small = small_copies_[i];
    if (small.copies == 0) continue;
    WireWriter copies(self, Number(Tag::kSmallCopies));
    copies.add_enum(Number(wire::SmallCopiesTag::kDirection), static_cast<int32_t>(i));
    copies.add_uint64(Number(wire::SmallCopiesTag::kCopies), small.copies);
    copies.add_uint64(Number(wire::SmallCopiesTag::kBytes), small.bytes);
    copies.add_uint64(Number(wire::SmallCopiesTag::kDurationNs), small.duration_ns);
  }
}

void BatchBuilder::CountSmallCopy(wire::CopyDirection direction, uint64_t bytes,
                                  uint64_t duration_ns) noexcept {
  const auto index = static_cast<size_t>(direction);
  SmallCopies& small = small_copies_[index < kDirections ? index : 0];
  ++small.copies;
  small.bytes += bytes;
  small.duration_ns += duration_ns;
}

void BatchBuilder::CountUnknownKind(uint32_t kind) noexcept {
  size_t i = 0;
  while (i < unknown_kind_count_ && unknown_kinds_[i].kind != kind) ++i;
  if (i == kMaxUnknownKinds) i = kMaxUnknownKinds - 1;
  if (i == unknown_kind_count_) {
    ++unknown_kind_count_;
    unknown_kinds_[i].kind = kind;
  }
  ++unknown_kinds_[i].records;
}

void BatchBuilder::EncodeBody(WireBuffer* out) noexcept {
  using Tag = wire::BatchTag;
  WireWriter batch(*out);
  batch.add_uint64(Number(Tag::kSequence), sequence_);
  batch.add_fixed64(Number(Tag::kBaseNs), base_ns_);
  batch.add_uint64(Number(Tag::kRecords), rows());
  EncodeClockPair(batch, Number(Tag::kClock));
  AppendFields(*out, definitions_);
  if (kernels_.rows != 0) KeepCount(kernels_, wire::KernelsTag::kStartDelta);
  if (copies_.rows != 0) KeepCount(copies_, wire::CopiesTag::kStartDelta);
  if (memsets_.rows != 0) KeepCount(memsets_, wire::MemsetsTag::kStartDelta);
  if (syncs_.rows != 0) KeepCount(syncs_, wire::SyncsTag::kStartDelta);
  if (ranges_.rows != 0) KeepCount(ranges_, wire::RangesTag::kStartDelta);
  if (allocations_.rows != 0) KeepCount(allocations_, wire::AllocationsTag::kTimeDelta);
  if (allocator_levels_.rows != 0) KeepCount(allocator_levels_, wire::AllocatorLevelsTag::kTimeDelta);
  if (allocator_refusals_.rows != 0) KeepCount(allocator_refusals_, wire::AllocatorRefusalsTag::kTimeDelta);
  if (tensors_.rows != 0) KeepCount(tensors_, wire::TensorsTag::kTimeDelta);
  if (collectives_.rows != 0) KeepCount(collectives_, wire::CollectivesTag::kIssueDelta);
  if (small_allocations_.rows != 0) KeepCount(small_allocations_, wire::SmallAllocationsTag::kTimeDelta);
  if (pool_levels_.rows != 0) KeepCount(pool_levels_, wire::PoolLevelsTag::kTimeDelta);
  EncodeTable(batch, Tag::kKernels, kernels_);
  EncodeTable(batch, Tag::kCopies, copies_);
  EncodeTable(batch, Tag::kMemsets, memsets_);
  EncodeTable(batch, Tag::kSyncs, syncs_);
  AppendFields(*out, closed_launches_);
  EncodeTable(batch, Tag::kRanges, ranges_);
  EncodeTable(batch, Tag::kAllocations, allocations_);
  EncodeTable(batch, Tag::kAllocatorLevels, allocator_levels_);
  EncodeTable(batch, Tag::kAllocatorRefusals, allocator_refusals_);
  EncodeTable(batch, Tag::kTensors, tensors_);
  EncodeTable(batch, Tag::kCollectives, collectives_);
  EncodeTable(batch, Tag::kPlans, plans_);
  EncodeTable(batch, Tag::kGraphRuns, graph_runs_);
  if (recorded_steps_.rows != 0) KeepCount(recorded_steps_, wire::RecordedStepsTag::kBeginDelta);
  EncodeTable(batch, Tag::kRecordedSteps, recorded_steps_);
  EncodeTable(batch, Tag::kRangePayloads, range_payloads_);
  EncodeTable(batch, Tag::kSmallAllocations, small_allocations_);
  EncodeTable(batch, Tag::kPoolLevels, pool_levels_);
  EncodeLosses(batch, Number(Tag::kLosses));
  EncodeSelf(batch);
  EncodeHostState(batch);
}

bool BatchBuilder::Seal() noexcept {
  CloseLaunches();
  PutPoolLevels();
  const uint32_t records = rows();
  ++sequence_;
  const size_t bytes = MaxEncodedBytes() + kFramePrefixBytes;
  char* memory = queue_->Reserve(bytes);
  bool sealed = false;
  if (memory != nullptr) {
    WireBuffer body{memory + kFramePrefixBytes, bytes - kFramePrefixBytes};
    EncodeBody(&body);
    if (body.overflowed) {
      queue_->Cancel();
    } else {
      const size_t prefix = WriteFramePrefix(memory, wire::FrameTag::kBatch, body.size);
      queue_->Commit(kFramePrefixBytes - prefix, prefix + body.size, records, sequence_);
      sealed = true;
    }
  }
  if (sealed) {
    records_sealed_ += records;
    history_.Append(definitions_.data, definitions_.size);
    definitions_.size = 0;
  } else {
    if (pool_levels_.rows != 0) pools_.TellAgain();
    CountLoss(
        queue_->connected() ? wire::LossReason::kLossSendQueueFull : wire::LossReason::kLossNotConnected,
        records - pool_levels_.rows);
  }
  StartBatch();
  return sealed;
}

}  // namespace gpuprobe::injector
