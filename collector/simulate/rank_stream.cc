#include "collector/simulate/rank_stream.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "collector/framing/frame_decoder.h"
#include "proto/limits.h"

namespace gpuprobe::simulate {
namespace {

constexpr uint32_t kContext = 1;
constexpr uint64_t kLostBlock = 256;  // device records that an activity buffer loses together
constexpr uint32_t kFirstPid = 10'000;
constexpr uint32_t kElementBytes = 2;
constexpr char kDatatype[] = "bfloat16";

// As CUPTI numbers a program's streams: the default stream is 7, others follow.
uint32_t WireStream(uint8_t stream) { return stream == 0 ? 7 : 13U + 4U * (stream - 1U); }

v1::MemoryKind WireMemory(MemoryPlace place) {
  switch (place) {
    case MemoryPlace::kPageable:
      return v1::MEMORY_KIND_PAGEABLE;
    case MemoryPlace::kPinned:
      return v1::MEMORY_KIND_PINNED;
    case MemoryPlace::kDevice:
      break;
  }
  return v1::MEMORY_KIND_DEVICE;
}

// Columns hold differences.
class Delta {
 public:
  explicit Delta(uint64_t first = 0) : previous_(first) {}
  int64_t operator()(uint64_t value) {
    const auto delta = static_cast<int64_t>(value - previous_);
    previous_ = value;
    return delta;
  }

 private:
  uint64_t previous_;
};

// A column that is all zero may be left out; when it is not the only one, its zeros only cost bytes.
template <typename Column>
void DropZeros(Column* column) {
  if (std::all_of(column->begin(), column->end(), [](auto value) { return value == 0; })) column->Clear();
}

void SetClock(v1::ClockPair* pair, const RankClock& clock, int64_t now_ns) {
  pair->set_realtime_ns(clock.Realtime(now_ns));
  pair->set_monotonic_ns(clock.Monotonic(now_ns));
}

void AppendFrame(const v1::Frame& frame, std::string& out) {
  const size_t size = frame.ByteSizeLong();
  char prefix[10];
  size_t length = 0;
  for (size_t rest = size; rest != 0 || length == 0; rest >>= 7)
    prefix[length++] = static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
  const size_t before = out.size();
  out.resize(before + length + size);
  std::copy(prefix, prefix + length, out.begin() + static_cast<ptrdiff_t>(before));
  frame.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out.data()) + before + length);
}

}  // namespace

RankStream::RankStream(RankDescription description)
    : description_(std::move(description)), random_(description_.seed) {}

uint32_t RankStream::String(const std::string& text) {
  const auto [it, added] = strings_.try_emplace(text, static_cast<uint32_t>(strings_.size() + 1));
  if (added) new_strings_.emplace_back(it->second, text);
  return it->second;
}

uint32_t RankStream::Site(simulate::Kernel kernel, uint8_t stream, uint16_t grid_percent) {
  const uint32_t key =
      static_cast<uint32_t>(kernel) << 24 | static_cast<uint32_t>(stream) << 16 | grid_percent;
  const auto [it, added] = sites_.try_emplace(key, static_cast<uint32_t>(sites_.size() + 1));
  const uint32_t id = it->second;
  if (!added) return id;
  const KernelInfo& info = InfoOf(kernel);
  v1::KernelSite& site = new_sites_.emplace_back();
  site.set_id(id);
  site.set_name(String(std::string(info.name)));
  site.set_device(static_cast<uint32_t>(description_.local_rank));
  site.set_context(kContext);
  site.set_stream(WireStream(stream));
  site.set_grid_x(std::max<uint32_t>(1, info.grid[0] * grid_percent / 100));
  site.set_grid_y(info.grid[1]);
  site.set_grid_z(info.grid[2]);
  site.set_block_x(info.block[0]);
  site.set_block_y(info.block[1]);
  site.set_block_z(info.block[2]);
  site.set_registers_per_thread(info.registers);
  site.set_dynamic_shared_bytes(info.shared_bytes);
  return id;
}

// Whole buffers are lost, not single records.
bool RankStream::Lose() {
  if (description_.lost_share <= 0) return false;
  if (device_records_++ % kLostBlock == 0) losing_ = random_.Uniform() < description_.lost_share;
  if (losing_) ++lost_;
  return losing_;
}

void RankStream::Kernel(simulate::Kernel kernel, uint8_t stream, uint16_t grid_percent, int64_t start_ns,
                        int64_t end_ns, uint64_t correlation, uint64_t graph_node) {
  if (Lose()) return;
  kernels_.push_back({start_ns, end_ns, correlation, graph_node, Site(kernel, stream, grid_percent)});
  ++waiting_;
}

void RankStream::Copy(const Instruction& copy, int64_t start_ns, int64_t end_ns, uint64_t correlation) {
  if (Lose()) return;
  copies_.push_back(
      {start_ns, end_ns, correlation, copy.bytes, copy.id, copy.memory, copy.stream, copy.blocking, false});
  ++waiting_;
}

void RankStream::Memset(const Instruction& memset, int64_t start_ns, int64_t end_ns, uint64_t correlation) {
  if (Lose()) return;
  copies_.push_back(
      {start_ns, end_ns, correlation, memset.bytes, 0, MemoryPlace::kDevice, memset.stream, false, true});
  ++waiting_;
}

void RankStream::Launch(uint32_t thread, int64_t time_ns, uint64_t correlation, uint64_t range,
                        uint64_t fallback, uint32_t graph) {
  launches_.push_back({time_ns, correlation, range, fallback, thread, graph});
  ++waiting_;
}

void RankStream::Sync(v1::SyncKind kind, uint8_t stream, int64_t start_ns, int64_t end_ns,
                      uint64_t correlation) {
  syncs_.push_back({start_ns, end_ns, correlation, kind, stream});
}

void RankStream::Range(uint64_t id, uint64_t parent, uint32_t name, uint32_t thread, int64_t start_ns,
                       int64_t end_ns) {
  ranges_.push_back({start_ns, end_ns, id, parent, name, thread});
}

void RankStream::Allocation(const Instruction& what, bool release, int64_t time_ns, uint64_t range) {
  allocations_.push_back({time_ns, what.failed ? 0 : what.address, what.bytes, range, v1::MEMORY_KIND_DEVICE,
                          release, what.failed});
}

void RankStream::Tensor(const Instruction& what, bool release, int64_t time_ns, uint64_t range) {
  const auto bytes = static_cast<int64_t>(what.bytes);
  tensors_.push_back({time_ns, what.address, release ? -bytes : bytes, range});
}

void RankStream::AllocatorLevel(uint64_t allocated, uint64_t reserved, int64_t time_ns) {
  levels_.push_back({time_ns, allocated, reserved, 0, 0, false});
}

void RankStream::AllocatorRefusal(uint64_t asked, int64_t time_ns, uint64_t range) {
  const uint64_t allocated = levels_.empty() ? peak_allocated_ : levels_.back().allocated;
  const uint64_t reserved = levels_.empty() ? peak_reserved_ : levels_.back().reserved;
  levels_.push_back({time_ns, allocated, reserved, asked, range, true});
}

void RankStream::Collective(const Instruction& call, uint32_t thread, uint64_t seq, uint64_t plan,
                            int64_t issue_ns, int64_t return_ns, uint64_t range) {
  calls_.push_back(
      {issue_ns, return_ns, seq, plan, call.bytes, range, thread, call.peer, call.collective, call.comm});
}

void RankStream::Plan(uint64_t plan, uint64_t correlation, uint64_t graph_node, uint32_t graph) {
  plans_.push_back({plan, correlation, graph_node, graph});
}

void RankStream::Hello(std::string& out) const {
  v1::Frame frame;
  v1::Hello& hello = *frame.mutable_hello();
  hello.set_protocol_major(wire::kProtocolMajor);
  hello.set_protocol_minor(wire::kProtocolMinor);
  hello.set_probe_version("simulate");
  v1::Identity& id = *hello.mutable_identity();
  id.set_rank(description_.rank);
  id.set_local_rank(description_.local_rank);
  id.set_world_size(description_.world_size);
  id.set_rank_source(v1::RANK_SOURCE_TORCHRUN);
  id.set_job(description_.job);
  id.set_host(description_.host);
  id.set_pid(kFirstPid + static_cast<uint32_t>(description_.rank));
  id.set_process_start_ns(description_.clock.Realtime(0) - 1'000'000'000);
  id.set_executable("gpuprobe");
  for (const std::string& argument : description_.command_line) id.add_command_line(argument);
  id.set_uid(description_.uid);
  SetClock(hello.mutable_clock(), description_.clock, 0);
  hello.set_timing_source(v1::TIMING_SOURCE_CUPTI_ACTIVITY);
  hello.set_loaded_by(v1::LOADED_BY_CUDA_INJECTION);
  AppendFrame(frame, out);
}

void RankStream::Bye(int64_t now_ns, std::string& out) const {
  v1::Frame frame;
  frame.mutable_bye()->set_reason(v1::BYE_REASON_EXIT);
  frame.mutable_bye()->set_batches(sequence_);
  SetClock(frame.mutable_bye()->mutable_clock(), description_.clock, now_ns);
  AppendFrame(frame, out);
}

void RankStream::Describe(v1::Batch& batch) {
  if (!described_) {
    described_ = true;
    v1::ThreadDef* main = batch.add_threads();
    main->set_id(kMainThread);
    main->set_tid(kFirstPid + static_cast<uint32_t>(description_.rank));
    main->set_name("python3");
    main->set_main(true);
    v1::ThreadDef* autograd = batch.add_threads();
    autograd->set_id(kAutogradThread);
    autograd->set_tid(main->tid() + 100'000);
    autograd->set_name("pt_autograd_0");
    v1::Device* device = batch.add_devices();
    device->set_ordinal(static_cast<uint32_t>(description_.local_rank));
    device->set_name(description_.device_name);
    char uuid[48];
    std::snprintf(uuid, sizeof(uuid), "GPU-%08x-0000-0000-0000-000000000000",
                  static_cast<unsigned>(description_.rank));
    device->set_uuid(uuid);
    device->set_memory_bytes(description_.device_bytes);
    device->set_multiprocessors(132);
    device->set_compute_major(9);
    device->set_memory_bandwidth_bytes_per_s(3'352'000'000'000);
    v1::Versions* versions = batch.mutable_versions();
    versions->set_cuda_driver(13000);
    versions->set_cuda_runtime(13000);
    versions->set_cupti(130000);
    versions->set_nccl(static_cast<int32_t>(description_.nccl_version));
    for (size_t i = 0; i < description_.communicators.size(); ++i) {
      const CommunicatorMember& member = description_.communicators[i];
      v1::Communicator* comm = batch.add_communicators();
      comm->set_id(static_cast<uint32_t>(i + 1));
      comm->set_hash(member.hash);
      comm->set_rank(member.rank);
      comm->set_ranks(member.ranks);
      comm->set_device(description_.local_rank);
      comm->set_time_ns(description_.clock.Realtime(0));
      if (!member.name.empty()) comm->set_name(String(member.name));
    }
  }
  for (const auto& [id, text] : new_strings_) {
    v1::StringDef* def = batch.add_strings();
    def->set_id(id);
    def->set_value(text);
  }
  for (const v1::KernelSite& site : new_sites_) *batch.add_kernel_sites() = site;
  new_strings_.clear();
  new_sites_.clear();
}

// Hands on everything that is over and keeps the rest, in order.
template <typename Row, typename Put>
void RankStream::TakeFinished(std::vector<Row>& rows, uint64_t until_ns, bool all, Put put) {
  size_t kept = 0;
  const auto until = static_cast<int64_t>(until_ns);
  for (Row& row : rows) {
    if (all || row.end_ns <= until) {
      put(row);
      --waiting_;
      ++sent_;
    } else {
      rows[kept++] = row;
    }
  }
  rows.resize(kept);
}

void RankStream::PutDeviceRecords(v1::Batch& batch, int64_t now_ns, bool all) {
  const RankClock& clock = description_.clock;
  const auto until = static_cast<uint64_t>(now_ns);
  if (!kernels_.empty()) {
    v1::Kernels* m = batch.mutable_kernels();
    uint64_t end = base_ns_;
    Delta correlation;
    Delta node;
    TakeFinished(kernels_, until, all, [&](const KernelRow& row) {
      const uint64_t start = clock.Realtime(row.start_ns);
      m->add_start_delta(static_cast<int64_t>(start - end));
      end = clock.EndOf(row.start_ns, row.end_ns);
      m->add_duration(end - start);
      m->add_site(row.site);
      m->add_correlation_delta(correlation(row.correlation));
      m->add_graph_node_delta(node(row.graph_node));
    });
    DropZeros(m->mutable_graph_node_delta());
  }
  if (copies_.empty()) return;
  v1::Copies* copies = batch.mutable_copies();
  v1::Memsets* memsets = batch.mutable_memsets();
  const auto device = static_cast<uint32_t>(description_.local_rank);
  uint64_t copy_end = base_ns_;
  uint64_t memset_end = base_ns_;
  Delta copy_correlation;
  Delta memset_correlation;
  TakeFinished(copies_, until, all, [&](const CopyRow& row) {
    const uint64_t start = clock.Realtime(row.start_ns);
    const uint64_t end = clock.EndOf(row.start_ns, row.end_ns);
    if (row.memset) {
      memsets->add_start_delta(static_cast<int64_t>(start - memset_end));
      memsets->add_duration(end - start);
      memsets->add_bytes(row.bytes);
      memsets->add_memory(v1::MEMORY_KIND_DEVICE);
      memsets->add_device(device);
      memsets->add_context(kContext);
      memsets->add_stream(WireStream(row.stream));
      memsets->add_correlation_delta(memset_correlation(row.correlation));
      memset_end = end;
      return;
    }
    const bool in = row.direction == v1::COPY_DIRECTION_H2D;
    const v1::MemoryKind host = WireMemory(row.memory);
    copies->add_start_delta(static_cast<int64_t>(start - copy_end));
    copies->add_duration(end - start);
    copies->add_bytes(row.bytes);
    copies->add_direction(static_cast<v1::CopyDirection>(row.direction));
    copies->add_src_memory(in ? host : v1::MEMORY_KIND_DEVICE);
    copies->add_dst_memory(in ? v1::MEMORY_KIND_DEVICE : host);
    copies->add_device(device);
    copies->add_context(kContext);
    copies->add_stream(WireStream(row.stream));
    copies->add_correlation_delta(copy_correlation(row.correlation));
    copies->add_asynchronous(row.blocking ? 0 : 1);
    copy_end = end;
  });
}

void RankStream::PutLaunches(v1::Batch& batch) {
  for (uint32_t thread = kMainThread; thread <= kAutogradThread; ++thread) {
    v1::Launches* m = nullptr;
    Delta time(base_ns_);
    Delta correlation;
    Delta range;
    Delta fallback;
    for (const LaunchRow& row : launches_) {
      if (row.thread != thread) continue;
      if (m == nullptr) {
        m = batch.add_launches();
        m->set_thread(thread);
      }
      m->add_time_delta(time(description_.clock.Realtime(row.time_ns)));
      m->add_correlation_delta(correlation(row.correlation));
      m->add_range_delta(range(row.range));
      m->add_fallback_range_delta(fallback(row.fallback));
      m->add_graph(row.graph);
    }
    if (m == nullptr) continue;
    DropZeros(m->mutable_range_delta());
    DropZeros(m->mutable_fallback_range_delta());
    DropZeros(m->mutable_graph());
  }
  waiting_ -= launches_.size();
  sent_ += launches_.size();
  launches_.clear();
}

void RankStream::PutHostRecords(v1::Batch& batch) {
  const RankClock& clock = description_.clock;
  if (!syncs_.empty()) {
    v1::Syncs* m = batch.mutable_syncs();
    uint64_t end = base_ns_;
    Delta correlation;
    for (const SyncRow& row : syncs_) {
      const uint64_t start = clock.Realtime(row.start_ns);
      m->add_start_delta(static_cast<int64_t>(start - end));
      end = clock.EndOf(row.start_ns, row.end_ns);
      m->add_duration(end - start);
      m->add_what(row.kind);
      m->add_context(kContext);
      m->add_stream(row.kind == v1::SYNC_KIND_STREAM ? WireStream(row.stream) : 0);
      m->add_event(0);
      m->add_correlation_delta(correlation(row.correlation));
    }
    sent_ += syncs_.size();
    syncs_.clear();
  }
  if (ranges_.empty()) return;
  v1::Ranges* m = batch.mutable_ranges();
  uint64_t end = base_ns_;
  Delta id;
  Delta parent;
  for (const RangeRow& row : ranges_) {
    const uint64_t start = clock.Realtime(row.start_ns);
    m->add_start_delta(static_cast<int64_t>(start - end));
    end = clock.EndOf(row.start_ns, row.end_ns);
    m->add_duration(end - start);
    m->add_id_delta(id(row.id));
    m->add_parent_delta(parent(row.parent));
    m->add_name(row.name);
    m->add_thread(row.thread);
  }
  sent_ += ranges_.size();
  ranges_.clear();
}

void RankStream::PutAllocations(v1::Batch& batch) {
  const RankClock& clock = description_.clock;
  const auto device = static_cast<uint32_t>(description_.local_rank);
  if (!allocations_.empty()) {
    v1::Allocations* m = batch.mutable_allocations();
    Delta time(base_ns_);
    Delta address;
    Delta range;
    for (const AllocationRow& row : allocations_) {
      m->add_time_delta(time(clock.Realtime(row.time_ns)));
      m->add_op(row.release ? v1::ALLOCATION_OP_FREE : v1::ALLOCATION_OP_ALLOC);
      m->add_memory(static_cast<v1::MemoryKind>(row.kind));
      m->add_address_delta(address(row.address));
      m->add_bytes(row.bytes);
      m->add_device(device);
      m->add_failed(row.failed ? 1 : 0);
      m->add_thread(kMainThread);
      m->add_range_delta(range(row.range));
    }
    sent_ += allocations_.size();
    allocations_.clear();
  }
  if (levels_.empty()) return;
  Delta level_time(base_ns_);
  Delta refusal_time(base_ns_);
  Delta range;
  for (const LevelRow& row : levels_) {
    if (row.refusal) {
      v1::AllocatorRefusals* m = batch.mutable_allocator_refusals();
      m->add_time_delta(refusal_time(clock.Realtime(row.time_ns)));
      m->add_device(device);
      m->add_asked(row.asked);
      m->add_allocated(row.allocated);
      m->add_reserved(row.reserved);
      m->add_range_delta(range(row.range));
      continue;
    }
    peak_allocated_ = std::max(peak_allocated_, row.allocated);
    peak_reserved_ = std::max(peak_reserved_, row.reserved);
    v1::AllocatorLevels* m = batch.mutable_allocator_levels();
    m->add_time_delta(level_time(clock.Realtime(row.time_ns)));
    m->add_device(device);
    m->add_allocated(row.allocated);
    m->add_reserved(row.reserved);
    m->add_peak_allocated(peak_allocated_);
    m->add_peak_reserved(peak_reserved_);
  }
  sent_ += levels_.size();
  levels_.clear();
}

void RankStream::PutTensors(v1::Batch& batch) {
  if (tensors_.empty()) return;
  v1::Tensors* m = batch.mutable_tensors();
  Delta time(base_ns_);
  Delta address;
  Delta range;
  for (const TensorRow& row : tensors_) {
    m->add_time_delta(time(description_.clock.Realtime(row.time_ns)));
    m->add_address_delta(address(row.address));
    m->add_bytes(row.bytes);
    m->add_device(static_cast<uint32_t>(description_.local_rank));
    m->add_range_delta(range(row.range));
  }
  sent_ += tensors_.size();
  tensors_.clear();
}

void RankStream::PutCalls(v1::Batch& batch) {
  if (!calls_.empty()) {
    v1::Collectives* m = batch.mutable_collectives();
    const uint32_t datatype = String(kDatatype);
    Delta issue(base_ns_);
    Delta seq;
    Delta plan;
    Delta range;
    for (const CallRow& row : calls_) {
      m->add_issue_delta(issue(description_.clock.Realtime(row.issue_ns)));
      m->add_host_duration(static_cast<uint64_t>(row.return_ns - row.issue_ns));
      m->add_op(String(std::string(NameOf(row.op))));
      m->add_comm(row.comm + 1U);
      m->add_seq_delta(seq(row.seq));
      m->add_count(row.bytes / kElementBytes);
      m->add_datatype(datatype);
      m->add_element_bytes(kElementBytes);
      m->add_root(row.op == CollectiveOp::kBroadcast ? 0 : -1);
      m->add_peer(row.peer);
      m->add_plan_delta(plan(row.plan));
      m->add_thread(row.thread);
      m->add_range_delta(range(row.range));
      m->add_source(v1::CALL_SOURCE_RELOCATION);
      m->add_result(0);
    }
    sent_ += calls_.size();
    calls_.clear();
  }
  if (plans_.empty()) return;
  v1::Plans* m = batch.mutable_plans();
  Delta plan;
  Delta correlation;
  Delta node;
  for (const PlanRow& row : plans_) {
    m->add_plan_delta(plan(row.plan));
    m->add_correlation_delta(correlation(row.correlation));
    m->add_graph_node_delta(node(row.graph_node));
    m->add_graph(row.graph);
  }
  plans_.clear();
}

void RankStream::Batch(int64_t now_ns, bool all, v1::Frame& scratch, std::string& out) {
  scratch.Clear();
  v1::Batch& batch = *scratch.mutable_batch();
  batch.set_sequence(++sequence_);
  if (base_ns_ == 0) base_ns_ = description_.clock.Realtime(0);
  batch.set_base_ns(base_ns_);
  SetClock(batch.mutable_clock(), description_.clock, now_ns);
  // Ranges keep the program's name ids until here.
  for (RangeRow& row : ranges_) row.name = String(description_.range_names[row.name]);
  PutDeviceRecords(batch, now_ns, all);
  PutLaunches(batch);
  PutHostRecords(batch);
  PutAllocations(batch);
  PutTensors(batch);
  PutCalls(batch);
  Describe(batch);
  if (lost_ > 0) {
    v1::Loss* loss = batch.add_losses();
    loss->set_reason(v1::LOSS_BUFFER_POOL_EMPTY);
    loss->set_records(lost_);
  }
  batch.mutable_self()->set_records(sent_);
  batch.mutable_self()->set_batches(sequence_);
  AppendFrame(scratch, out);
  base_ns_ = description_.clock.Realtime(now_ns);
}

}  // namespace gpuprobe::simulate
