#include "collector/simulate/rank_stream.h"

#include <sys/syscall.h>

#include <algorithm>
#include <string_view>

#include "collector/records/row_writer.h"
#include "proto/limits.h"

namespace gpuprobe::simulate {
namespace {

constexpr uint32_t kContext = 1;
constexpr uint64_t kLostBlock = 256;  // device records that an activity buffer loses together
// No process of Linux has such a number (at most 2^22), so that none is taken for a simulated one.
constexpr uint32_t kFirstPid = 5'000'000;
constexpr uint32_t kElementBytes = 2;
constexpr char kDatatype[] = "bfloat16";

// As CUPTI numbers a program's streams: the default stream is 7, others follow.
uint32_t WireStream(uint8_t stream) { return stream == 0 ? 7 : 13U + 4U * (stream - 1U); }

// Times in rows are the simulation's until they are sent.
uint64_t True(int64_t ns) { return static_cast<uint64_t>(ns); }

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
  site.set_device(device());
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
  Rows<model::KernelRecord>().push_back({.start_ns = True(start_ns),
                                         .end_ns = True(end_ns),
                                         .site = Site(kernel, stream, grid_percent),
                                         .correlation = correlation,
                                         .graph_node = graph_node});
}

void RankStream::Copy(const Instruction& copy, int64_t start_ns, int64_t end_ns, uint64_t correlation) {
  if (Lose()) return;
  const bool in = copy.id == v1::COPY_DIRECTION_H2D;
  const v1::MemoryKind host = WireMemory(copy.memory);
  Rows<model::CopyRecord>().push_back({.start_ns = True(start_ns),
                                       .end_ns = True(end_ns),
                                       .bytes = copy.bytes,
                                       .direction = static_cast<v1::CopyDirection>(copy.id),
                                       .src_memory = in ? host : v1::MEMORY_KIND_DEVICE,
                                       .dst_memory = in ? v1::MEMORY_KIND_DEVICE : host,
                                       .device = device(),
                                       .context = kContext,
                                       .stream = WireStream(copy.stream),
                                       .correlation = correlation,
                                       .asynchronous = !copy.blocking});
}

void RankStream::Memset(const Instruction& memset, int64_t start_ns, int64_t end_ns, uint64_t correlation) {
  if (Lose()) return;
  Rows<model::MemsetRecord>().push_back({.start_ns = True(start_ns),
                                         .end_ns = True(end_ns),
                                         .bytes = memset.bytes,
                                         .memory = v1::MEMORY_KIND_DEVICE,
                                         .device = device(),
                                         .context = kContext,
                                         .stream = WireStream(memset.stream),
                                         .correlation = correlation});
}

void RankStream::Launch(uint32_t thread, int64_t time_ns, uint64_t correlation, uint64_t range,
                        uint64_t fallback, uint32_t graph) {
  Rows<model::LaunchRecord>().push_back({.thread = thread,
                                         .time_ns = True(time_ns),
                                         .correlation = correlation,
                                         .range = range,
                                         .fallback_range = fallback,
                                         .graph = graph});
}

void RankStream::Sync(v1::SyncKind kind, uint8_t stream, int64_t start_ns, int64_t end_ns,
                      uint64_t correlation) {
  Rows<model::SyncRecord>().push_back({.start_ns = True(start_ns),
                                       .end_ns = True(end_ns),
                                       .what = kind,
                                       .context = kContext,
                                       .stream = kind == v1::SYNC_KIND_STREAM ? WireStream(stream) : 0,
                                       .correlation = correlation});
}

void RankStream::Range(uint64_t id, uint64_t parent, uint32_t name, uint32_t thread, int64_t start_ns,
                       int64_t end_ns) {
  Rows<model::RangeRecord>().push_back({.start_ns = True(start_ns),
                                        .end_ns = True(end_ns),
                                        .id = id,
                                        .parent = parent,
                                        .name = name,
                                        .thread = thread});
}

void RankStream::Allocation(const Instruction& what, bool release, int64_t time_ns, uint64_t range) {
  Rows<model::AllocationRecord>().push_back({.time_ns = True(time_ns),
                                             .op = release ? v1::ALLOCATION_OP_FREE : v1::ALLOCATION_OP_ALLOC,
                                             .memory = v1::MEMORY_KIND_DEVICE,
                                             .address = what.failed ? 0 : what.address,
                                             .bytes = what.bytes,
                                             .device = device(),
                                             .failed = what.failed,
                                             .thread = kMainThread,
                                             .range = range});
}

void RankStream::Tensor(const Instruction& what, bool release, int64_t time_ns, uint64_t range) {
  const auto bytes = static_cast<int64_t>(what.bytes);
  Rows<model::TensorRecord>().push_back({.time_ns = True(time_ns),
                                         .address = what.address,
                                         .change_bytes = release ? -bytes : bytes,
                                         .device = device(),
                                         .range = range});
}

void RankStream::AllocatorLevel(uint64_t allocated, uint64_t reserved, int64_t time_ns) {
  peak_allocated_ = std::max(peak_allocated_, allocated);
  peak_reserved_ = std::max(peak_reserved_, reserved);
  Rows<model::AllocatorLevelRecord>().push_back({.time_ns = True(time_ns),
                                                 .device = device(),
                                                 .allocated_bytes = allocated,
                                                 .reserved_bytes = reserved,
                                                 .peak_allocated_bytes = peak_allocated_,
                                                 .peak_reserved_bytes = peak_reserved_});
}

void RankStream::AllocatorRefusal(uint64_t asked, int64_t time_ns, uint64_t range) {
  const std::vector<model::AllocatorLevelRecord>& levels = Rows<model::AllocatorLevelRecord>();
  Rows<model::AllocatorRefusalRecord>().push_back(
      {.time_ns = True(time_ns),
       .device = device(),
       .asked_bytes = asked,
       .allocated_bytes = levels.empty() ? peak_allocated_ : levels.back().allocated_bytes,
       .reserved_bytes = levels.empty() ? peak_reserved_ : levels.back().reserved_bytes,
       .range = range});
}

void RankStream::Collective(const Instruction& call, uint32_t thread, uint64_t seq, uint64_t plan,
                            int64_t issue_ns, int64_t return_ns, uint64_t range) {
  Rows<model::CollectiveRecord>().push_back({.issue_ns = True(issue_ns),
                                             .return_ns = True(return_ns),
                                             .op = static_cast<uint32_t>(call.collective),
                                             .comm = call.comm + 1U,
                                             .seq = seq,
                                             .count = call.bytes / kElementBytes,
                                             .element_bytes = kElementBytes,
                                             .root = call.collective == CollectiveOp::kBroadcast ? 0 : -1,
                                             .peer = call.peer,
                                             .plan = plan,
                                             .thread = thread,
                                             .range = range,
                                             .source = v1::CALL_SOURCE_RELOCATION});
}

void RankStream::Plan(uint64_t plan, uint64_t correlation, uint64_t graph_node, uint32_t graph) {
  Rows<model::PlanRecord>().push_back(
      {.plan = plan, .correlation = correlation, .graph_node = graph_node, .graph = graph});
}

uint32_t RankStream::Frame(HostCode code, uint32_t line) {
  uint32_t& innermost = frames_[{code, line}];
  if (innermost != 0) return innermost;
  const SampledCode what = CodeOf(code);
  for (const HostFunction& function : what.stack) {
    v1::HostFrame& frame = new_frames_.emplace_back();
    frame.set_id(++last_frame_);
    frame.set_caller(innermost);
    frame.set_function(String(std::string(function.function)));
    frame.set_file(String(std::string(function.file)));
    frame.set_line(function.line + (&function == &what.stack.back() ? line : 0));
    innermost = frame.id();
  }
  return innermost;
}

void RankStream::HostSamples(HostCode code, uint32_t thread, int64_t start_ns, int64_t end_ns) {
  constexpr int64_t kPeriodNs = 10'000'000;
  const SampledCode what = CodeOf(code);
  for (int64_t since_ns = start_ns; since_ns + kPeriodNs < end_ns; since_ns += kPeriodNs) {
    model::HostSampleRecord& sample = Rows<model::HostSampleRecord>().emplace_back();
    sample.time_ns = True(since_ns + kPeriodNs);
    sample.since_ns = True(since_ns);
    sample.thread = thread;
    sample.in_gap = true;
    sample.state = what.writes ? v1::THREAD_STATE_UNINTERRUPTIBLE : v1::THREAD_STATE_RUNNING;
    sample.call = what.call.empty() ? 0 : String(std::string(what.call));
    sample.call_since_ns = what.call.empty() ? 0 : True(start_ns);
    sample.system_call = what.writes ? SYS_write : -1;
    sample.file = what.file.empty() ? 0 : String(std::string(what.file));
    sample.frame = Frame(code, static_cast<uint32_t>(since_ns / kPeriodNs) % what.lines);
    sample.stack = v1::STACK_STATE_WHOLE;
  }
}

size_t RankStream::waiting() const {
  const auto count = []<typename Record>(const std::vector<Record>& rows) {
    constexpr auto kClock = wire::TableOf<Record>::kClock;
    return kClock == v1::Table::DEVICE || kClock == v1::Table::LAUNCH ? rows.size() : 0;
  };
  return std::apply([&](const auto&... rows) { return (count(rows) + ...); }, rows_);
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
    device->set_ordinal(this->device());
    device->set_name(description_.device_name);
    device->set_uuid(description_.device_uuid);
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
    }
  }
  for (const auto& [id, text] : new_strings_) {
    v1::StringDef* def = batch.add_strings();
    def->set_id(id);
    def->set_value(text);
  }
  for (const v1::KernelSite& site : new_sites_) *batch.add_kernel_sites() = site;
  for (const v1::HostFrame& frame : new_frames_) *batch.add_host_frames() = frame;
  new_frames_.clear();
  new_strings_.clear();
  new_sites_.clear();
}

template <typename Record>
Record RankStream::Shown(const Record& r) const {
  using Table = wire::TableOf<Record>;
  Record shown = r;
  const auto show = [&]<typename Spec>(Spec /*spec*/) {
    using wire::Role;
    if constexpr (Spec::kRole == Role::kStart || Spec::kRole == Role::kTime) {
      shown.*Spec::kMember = description_.clock.Realtime(static_cast<int64_t>(r.*Spec::kMember));
    } else if constexpr (Spec::kRole == Role::kBefore) {
      const bool none = Spec::kMayBeNone && r.*Spec::kMember == 0;
      if (!none) shown.*Spec::kMember = shown.*Spec::kOf - (r.*Spec::kOf - r.*Spec::kMember);
    } else if constexpr (Spec::kRole == Role::kEnd) {
      if constexpr (Spec::kMember == Table::kPrevious) {
        shown.*Spec::kMember = description_.clock.EndOf(static_cast<int64_t>(r.*Spec::kOf),
                                                        static_cast<int64_t>(r.*Spec::kMember));
      } else {  // measured as a duration
        shown.*Spec::kMember = shown.*Spec::kOf + (r.*Spec::kMember - r.*Spec::kOf);
      }
    }
  };
  [&]<typename... Specs>(wire::ColumnList<Specs...> /*specs*/) {
    (show(Specs{}), ...);
  }(typename Table::Columns{});
  return shown;
}

void RankStream::Complete(model::RangeRecord& range) {
  range.name = String(description_.range_names[range.name]);
}

void RankStream::Complete(model::CollectiveRecord& call) {
  call.datatype = String(kDatatype);
  call.op = String(std::string(NameOf(static_cast<CollectiveOp>(call.op))));
}

// Writes the rows, of the device those that are over, and keeps the rest, in order.
template <typename Record>
void RankStream::Put(std::vector<Record>& rows, int64_t now_ns, bool all, v1::Batch& batch) {
  using Table = wire::TableOf<Record>;
  if constexpr (Table::kKey != nullptr) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Record& a, const Record& b) { return a.*Table::kKey < b.*Table::kKey; });
  }
  model::RowWriter<Record> writer(batch);
  size_t kept = 0;
  for (Record& row : rows) {
    if constexpr (Table::kClock == v1::Table::DEVICE) {
      if (!all && row.end_ns > True(now_ns)) {
        rows[kept++] = row;
        continue;
      }
    }
    Record shown = Shown(row);
    Complete(shown);
    writer.Append(shown);
    if constexpr (Table::kPrevious != nullptr) ++sent_;  // a plan only says how two records belong together
  }
  rows.resize(kept);
}

void RankStream::Batch(int64_t now_ns, bool all, v1::Frame& scratch, std::string& out) {
  scratch.Clear();
  v1::Batch& batch = *scratch.mutable_batch();
  batch.set_sequence(++sequence_);
  if (base_ns_ == 0) base_ns_ = description_.clock.Realtime(0);
  batch.set_base_ns(base_ns_);
  SetClock(batch.mutable_clock(), description_.clock, now_ns);
  std::apply([&](auto&... rows) { (Put(rows, now_ns, all, batch), ...); }, rows_);
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
