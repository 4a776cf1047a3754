#include "collector/render/record_lines.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/model/calls/collective_kernels.h"
#include "collector/model/graph_runs.h"
#include "collector/model/range_payloads.h"
#include "collector/model/records.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

constexpr size_t kMaxStringId = size_t{1} << 22;

std::string Quote(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T>
void Number(std::string& line, const char* key, T value) {
  absl::StrAppend(&line, ",\"", key, "\":", value);
}

void Word(std::string& line, const char* key, std::string_view word) {
  absl::StrAppend(&line, ",\"", key, "\":\"", std::string(word), "\"");
}

void Triple(std::string& line, const char* key, uint32_t x, uint32_t y, uint32_t z) {
  absl::StrAppend(&line, ",\"", key, "\":[", x, ",", y, ",", z, "]");
}

template <typename Record>
void DeviceFields(std::string& line, uint32_t device, uint32_t stream, const Record& r) {
  absl::StrAppend(&line, ",\"device\":", device, ",\"stream\":", stream, ",\"start_ns\":", r.start_ns,
                  ",\"end_ns\":", r.end_ns);
  Number(line, "correlation", r.correlation);
}

const char* SourceName(v1::CallSource source) {
  switch (source) {
    case v1::CALL_SOURCE_INTERPOSED:
      return "interposed";
    case v1::CALL_SOURCE_RELOCATION:
      return "relocation";
    case v1::CALL_SOURCE_PLUGIN:
      return "plugin";
    case v1::CALL_SOURCE_NVTX:
      return "nvtx";
    case v1::CALL_SOURCE_KERNEL_NAME:
      return "kernel_name";
    default:
      return "unknown";
  }
}

// Empty for a kind that has no number.
std::string NumberOf(v1::PayloadKind kind, uint64_t value) {
  switch (kind) {
    case v1::PAYLOAD_KIND_UINT64:
      return absl::StrCat(value);
    case v1::PAYLOAD_KIND_INT64:
      return absl::StrCat(static_cast<int64_t>(value));
    case v1::PAYLOAD_KIND_DOUBLE:
      return nlohmann::json(std::bit_cast<double>(value)).dump();
    default:
      return "";
  }
}

void AppendPayload(std::string& line, const model::RangeRecord& range) {
  const std::string number = NumberOf(range.payload_kind, range.payload);
  if (!number.empty()) Number(line, "payload", number);
}

}  // namespace

std::string RecordLines::Begin(const char* kind) const {
  return absl::StrCat("{\"kind\":\"", kind, "\",\"rank\":", identity_.rank(), ",\"pid\":", identity_.pid());
}

const std::string& RecordLines::Quoted(uint32_t string) const {
  static const std::string kEmpty = "\"\"";
  return string < strings_.size() && !strings_[string].empty() ? strings_[string] : kEmpty;
}

void RecordLines::AppendNames(std::string& line, uint32_t device, uint32_t context, uint32_t stream) const {
  if (const auto name = device_names_.find(device); name != device_names_.end())
    absl::StrAppend(&line, ",\"device_name\":", Quoted(name->second));
  if (const auto name = stream_names_.find({context, stream}); name != stream_names_.end())
    absl::StrAppend(&line, ",\"stream_name\":", Quoted(name->second));
}

void RecordLines::LearnDefinitions(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) {
    if (def.id() >= kMaxStringId) continue;
    if (def.id() >= strings_.size()) strings_.resize(def.id() + 1);
    strings_[def.id()] = Quote(def.value());
  }
  for (const v1::KernelSite& site : batch.kernel_sites()) {
    sites_[site.id()] = site;
    if (site.id() >= kMaxStringId) continue;
    if (site.id() >= collective_sites_.size()) collective_sites_.resize(site.id() + 1);
    const std::string_view name = Quoted(site.name());
    collective_sites_[site.id()] = model::IsCollectiveKernel(name.substr(1));
  }
  for (const v1::ThreadDef& thread : batch.threads()) {
    thread_ids_[thread.id()] = thread.tid();
    thread_names_[thread.id()] = Quote(thread.given_name().empty() ? thread.name() : thread.given_name());
  }
  for (const v1::RangeCategory& category : batch.range_categories())
    category_names_[{category.domain(), category.category()}] = category.name();
  for (const v1::ObjectName& object : batch.object_names()) {
    if (object.kind() == v1::NAMED_OBJECT_DEVICE) device_names_[object.id()] = object.name();
    if (object.kind() == v1::NAMED_OBJECT_STREAM)
      stream_names_[{object.context(), object.id()}] = object.name();
  }
  for (const v1::Communicator& comm : batch.communicators()) {
    model::MergeCommunicator(comm, communicators_[comm.id()]);
  }
  if (batch.has_nccl_identity()) model::AdoptNcclIdentity(batch.nccl_identity(), identity_);
}

void RecordLines::LearnPlan(const model::PlanRecord& record) {
  if (record.graph_node != 0) {
    node_plans_.Set(record.graph_node, {record.plan, record.copy}, record.from_correlation);
    if (record.plan != 0) replays_.try_emplace(record.plan);
    return;
  }
  plan_of_[record.correlation] = record.plan;
  if (const auto copy = early_copies_.find(record.correlation); copy != early_copies_.end())
    NoteWork(copy->second, plans_[record.plan]);
  const auto early = early_.find(record.correlation);
  if (early == early_.end()) return;
  PlanWork& work = plans_[record.plan];
  const uint64_t end_ns = std::max(work.end_ns, early->second.end_ns);
  if (early->second.start_ns < work.start_ns) work = early->second;
  work.end_ns = end_ns;
  early_.erase(early);
}

void RecordLines::LearnKernel(const model::KernelRecord& kernel) {
  const auto plan = plan_of_.find(kernel.correlation);
  if (!sites_.contains(kernel.site)) return;
  const bool nccl = kernel.site < collective_sites_.size() && collective_sites_[kernel.site];
  if (plan == plan_of_.end() && !nccl) return;
  if (plan != plan_of_.end()) {
    NoteWork(kernel, plans_[plan->second]);
  } else if (kernel.graph_node == 0) {
    NoteWork(kernel, early_[kernel.correlation]);
  } else {
    replayed_kernels_.push_back(kernel);
  }
}

void RecordLines::LearnCopy(const model::CopyRecord& copy) {
  const PlanWork work{.start_ns = copy.start_ns,
                      .end_ns = copy.end_ns,
                      .correlation = copy.correlation,
                      .device = copy.device,
                      .stream = copy.stream};
  if (copy.graph_node != 0) {
    early_replays_.emplace_back(copy.graph_node, work);
    if (early_replays_.size() > kMaxEarlyReplays) KeepEarliestReplay();
    return;
  }
  if (const auto plan = plan_of_.find(copy.correlation); plan != plan_of_.end())
    return NoteWork(work, plans_[plan->second]);
  early_copies_[copy.correlation] = work;
  early_copies_order_.push_back(copy.correlation);
  if (early_copies_order_.size() <= kMaxEarlyCopies) return;
  early_copies_.erase(early_copies_order_.front());
  early_copies_order_.pop_front();
}

void RecordLines::NoteWork(const PlanWork& part, PlanWork& work) {
  const uint64_t end_ns = std::max(work.end_ns, part.end_ns);
  if (part.start_ns < work.start_ns) work = part;
  work.end_ns = end_ns;
}

void RecordLines::NoteWork(const model::KernelRecord& kernel, PlanWork& work) const {
  if (kernel.start_ns < work.start_ns) {  // the first kernel gives place and correlation
    const v1::KernelSite& site = sites_.at(kernel.site);
    work.start_ns = kernel.start_ns;
    work.correlation = kernel.correlation;
    work.device = site.device();
    work.stream = site.stream();
  }
  work.end_ns = std::max(work.end_ns, kernel.end_ns);
}

void RecordLines::KeepEarliestReplay() {
  if (node_plans_.Carries(early_replays_.front().first)) replayed_copies_.push_back(early_replays_.front());
  early_replays_.pop_front();
}

void RecordLines::ResolveReplays() {
  while (!early_replays_.empty()) KeepEarliestReplay();
  for (const model::KernelRecord& kernel : replayed_kernels_) {
    const model::CarriedPlan carried = node_plans_.PlanOf(kernel.graph_node, kernel.correlation);
    if (carried.plan != 0) NoteWork(kernel, replays_[carried.plan][{kernel.correlation, carried.copy}]);
  }
  for (const auto& [node, copy] : replayed_copies_) {
    const model::CarriedPlan carried = node_plans_.PlanOf(node, copy.correlation);
    if (carried.plan != 0) NoteWork(copy, replays_[carried.plan][{copy.correlation, carried.copy}]);
  }
  replayed_kernels_.clear();
  replayed_copies_.clear();
}

absl::Status RecordLines::Learn(const v1::Batch& batch) {
  LearnDefinitions(batch);
  absl::Status status = model::ForEachPlan(batch, [this](const model::PlanRecord& r) {
    if (r.plan != 0 || r.correlation == 0) LearnPlan(r);
  });
  if (!status.ok()) return status;
  status = model::ForEachRangePayload(batch, [this](const model::RangePayload& r) {
    const std::string number = NumberOf(r.kind, r.value);
    if (number.empty()) return;
    std::string& fields = fields_[r.range];
    absl::StrAppend(&fields, fields.empty() ? "" : ",", Quoted(r.field), ":", number);
  });
  if (!status.ok()) return status;
  if (!replays_.empty()) {
    status = model::ForEachLaunch(
        batch, [this](const model::LaunchRecord& r) { launch_ns_[r.correlation] = r.time_ns; });
    if (!status.ok()) return status;
  }
  status = model::ForEachCopy(batch, [this](const model::CopyRecord& r) { LearnCopy(r); });
  if (!status.ok()) return status;
  return model::ForEachKernel(batch, [this](const model::KernelRecord& r) { LearnKernel(r); });
}

absl::Status RecordLines::Write(const v1::Batch& batch, const Emit& emit) {
  ResolveReplays();
  WriteDeviceRecords(batch, emit);
  WriteGraphRuns(batch, emit);
  WriteHostRecords(batch, emit);
  WriteCommunicators(batch, emit);
  WriteCollectives(batch, emit);
  return absl::OkStatus();
}

void RecordLines::WriteDeviceRecords(const v1::Batch& batch, const Emit& emit) {
  // Columns were checked by Learn; a batch that failed there is never written.
  model::ForEachKernel(batch, [&](const model::KernelRecord& r) {
    const v1::KernelSite& site = sites_[r.site];
    std::string line = Begin("kernel");
    DeviceFields(line, site.device(), site.stream(), r);
    AppendNames(line, site.device(), site.context(), site.stream());
    absl::StrAppend(&line, ",\"name\":", Quoted(site.name()));
    Number(line, "graph_node", r.graph_node);
    Triple(line, "grid", site.grid_x(), site.grid_y(), site.grid_z());
    Triple(line, "block", site.block_x(), site.block_y(), site.block_z());
    emit(line + "}");
    if (Unexplained(r)) emit(UnexplainedLine(r, site));
  }).IgnoreError();
  model::ForEachCopy(batch, [&](const model::CopyRecord& r) {
    std::string line = Begin("memcpy");
    DeviceFields(line, r.device, r.stream, r);
    AppendNames(line, r.device, r.context, r.stream);
    Word(line, "direction", analysis::DirectionName(r.direction));
    Number(line, "bytes", r.bytes);
    Word(line, "src_memory", analysis::MemoryName(r.src_memory));
    Word(line, "dst_memory", analysis::MemoryName(r.dst_memory));
    if (r.graph_node != 0) Number(line, "graph_node", r.graph_node);
    if (r.peer_device >= 0) Number(line, "peer_device", r.peer_device);
    emit(line + "}");
  }).IgnoreError();
  model::ForEachMemset(batch, [&](const model::MemsetRecord& r) {
    std::string line = Begin("memset");
    DeviceFields(line, r.device, r.stream, r);
    AppendNames(line, r.device, r.context, r.stream);
    Number(line, "bytes", r.bytes);
    emit(line + "}");
  }).IgnoreError();
}

void RecordLines::WriteGraphRuns(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachGraphRun(batch, [&](const model::GraphRunRecord& r) {
    std::string line = Begin("graph_run");
    DeviceFields(line, r.device, r.stream, r);
    AppendNames(line, r.device, r.context, r.stream);
    Number(line, "graph", r.graph);
    emit(line + "}");
  }).IgnoreError();
}

void RecordLines::WritePools(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachSmallAllocations(batch, [&](const model::SmallAllocationsRecord& r) {
    std::string line = Begin("small_allocations");
    Number(line, "device", r.device);
    Word(line, "memory", analysis::MemoryName(r.memory));
    Number(line, "time_ns", r.end_ns);
    Number(line, "allocations", r.allocations);
    Number(line, "frees", r.frees);
    Number(line, "rise_bytes", r.rise_bytes);
    Number(line, "change_bytes", r.change_bytes);
    emit(line + "}");
  }).IgnoreError();
  model::ForEachPoolLevel(batch, [&](const model::PoolLevelRecord& r) {
    std::string line = Begin("pool");
    Number(line, "device", r.device);
    Number(line, "pool", r.pool);
    Number(line, "time_ns", r.time_ns);
    Number(line, "used_bytes", r.used_bytes);
    Number(line, "reserved_bytes", r.reserved_bytes);
    Number(line, "peak_used_bytes", r.peak_used_bytes);
    Number(line, "peak_reserved_bytes", r.peak_reserved_bytes);
    if (r.state == v1::POOL_STATE_DESTROYED) absl::StrAppend(&line, ",\"destroyed\":true");
    emit(line + "}");
  }).IgnoreError();
}

void RecordLines::WriteHostRecords(const v1::Batch& batch, const Emit& emit) {
  model::ForEachSync(batch, [&](const model::SyncRecord& r) {
    std::string line = Begin("sync");
    absl::StrAppend(&line, ",\"stream\":", r.stream, ",\"start_ns\":", r.start_ns, ",\"end_ns\":", r.end_ns);
    Number(line, "correlation", r.correlation);
    Word(line, "what", analysis::SyncName(r.what));
    emit(line + "}");
  }).IgnoreError();
  model::ForEachAllocation(batch, [&](const model::AllocationRecord& r) {
    std::string line = Begin(r.op == v1::ALLOCATION_OP_FREE ? "free" : "alloc");
    Number(line, "device", r.device);
    Word(line, "memory", analysis::MemoryName(r.memory));
    Number(line, "bytes", r.bytes);
    Number(line, "address", r.address);
    Number(line, "time_ns", r.time_ns);
    if (r.failed) absl::StrAppend(&line, ",\"failed\":true");
    if (r.by_nccl) absl::StrAppend(&line, ",\"by_nccl\":true");
    emit(line + "}");
  }).IgnoreError();
  model::ForEachTensor(batch, [&](const model::TensorRecord& r) {
    std::string line = Begin(r.release ? "tensor_free" : "tensor");
    Number(line, "device", r.device);
    Number(line, "bytes", r.bytes);
    Number(line, "address", r.address);
    Number(line, "time_ns", r.time_ns);
    emit(line + "}");
  }).IgnoreError();
  WritePools(batch, emit);
  model::ForEachRange(batch, [&](const model::RangeRecord& r) {
    std::string line = Begin("range");
    Number(line, "start_ns", r.start_ns);
    Number(line, "end_ns", r.end_ns);
    absl::StrAppend(&line, ",\"name\":", Quoted(r.name), ",\"domain\":", Quoted(r.domain));
    Number(line, "id", r.id);
    Number(line, "parent", r.parent);
    Number(line, "tid", thread_ids_[r.thread]);
    const bool push_pop = r.kind == v1::RANGE_KIND_PUSH_POP;
    Word(line, "range", push_pop ? "push_pop" : r.kind == v1::RANGE_KIND_MARK ? "mark" : "start_end");
    if (r.category != 0) Number(line, "category", r.category);
    if (const auto name = category_names_.find({r.domain, r.category}); name != category_names_.end())
      absl::StrAppend(&line, ",\"category_name\":", Quoted(name->second));
    if (r.color != 0) Number(line, "color", r.color);
    AppendPayload(line, r);
    if (const auto fields = fields_.find(r.id); fields != fields_.end())
      absl::StrAppend(&line, ",\"fields\":{", fields->second, "}");
    if (r.unclosed) absl::StrAppend(&line, ",\"unclosed\":true");
    emit(line + "}");
  }).IgnoreError();
  model::ForEachLaunch(batch, [&](const model::LaunchRecord& r) {
    std::string line = Begin("launch");
    Number(line, "time_ns", r.time_ns);
    Number(line, "correlation", r.correlation);
    Number(line, "tid", thread_ids_[r.thread]);
    const auto name = thread_names_.find(r.thread);
    absl::StrAppend(&line, ",\"thread\":", name == thread_names_.end() ? "\"\"" : name->second);
    Number(line, "range", r.range);
    if (r.fallback_range != 0) Number(line, "fallback_range", r.fallback_range);
    emit(line + "}");
  }).IgnoreError();
}

bool RecordLines::Unexplained(const model::KernelRecord& kernel) const {
  if (kernel.site >= collective_sites_.size() || !collective_sites_[kernel.site]) return false;
  return kernel.graph_node == 0 ? !plan_of_.contains(kernel.correlation)
                                : node_plans_.PlanOf(kernel.graph_node, kernel.correlation).plan == 0;
}

// Describes a collective that no call explains, by its kernel's name.
std::string RecordLines::UnexplainedLine(const model::KernelRecord& kernel,
                                         const v1::KernelSite& site) const {
  std::string line = Begin("collective");
  DeviceFields(line, site.device(), site.stream(), kernel);
  Word(line, "op", model::OperationOfKernel(std::string_view(Quoted(site.name())).substr(1)));
  Word(line, "comm", "unknown");
  Number(line, "plan", 0);
  Word(line, "source", "kernel_name");
  return line + "}";
}

std::string RecordLines::CollectiveLine(const model::CollectiveRecord& call, const PlanWork* work,
                                        uint64_t issue_ns) {
  std::string line = Begin("collective");
  if (work != nullptr) DeviceFields(line, work->device, work->stream, *work);
  const v1::Communicator& comm = communicators_[call.comm];
  absl::StrAppend(&line, ",\"op\":", Quoted(call.op));
  Word(line, "comm", analysis::CommName(comm.hash()));
  Number(line, "seq", call.seq);
  Number(line, "comm_rank", comm.rank());
  Number(line, "comm_ranks", comm.ranks());
  Number(line, "count", call.count);
  absl::StrAppend(&line, ",\"datatype\":", Quoted(call.datatype));
  Number(line, "bytes", call.count * call.element_bytes);
  Number(line, "root", call.root);
  Number(line, "peer", call.peer);
  Number(line, "issue_ns", issue_ns);
  Number(line, "plan", call.plan);
  Word(line, "source", SourceName(call.source));
  if (call.result != 0) Number(line, "result", call.result);
  if (call.algorithm != 0 || call.protocol != 0) {
    absl::StrAppend(&line, ",\"algorithm\":", Quoted(call.algorithm));
    absl::StrAppend(&line, ",\"protocol\":", Quoted(call.protocol));
    Number(line, "channels", call.channels);
  }
  return line;
}

void RecordLines::WriteCommunicators(const v1::Batch& batch, const Emit& emit) {
  for (const v1::Communicator& told : batch.communicators()) {
    if (!told_communicators_.insert({told.id(), told.state()}).second) continue;
    const v1::Communicator& comm = communicators_[told.id()];
    std::string line = Begin("communicator");
    Word(line, "comm", analysis::CommName(comm.hash()));
    const auto parent = communicators_.find(comm.parent());
    if (parent != communicators_.end()) Word(line, "parent", analysis::CommName(parent->second.hash()));
    if (comm.name() != 0) absl::StrAppend(&line, ",\"comm_name\":", Quoted(comm.name()));
    Number(line, "comm_rank", comm.rank());
    Number(line, "comm_ranks", comm.ranks());
    Number(line, "device", comm.device());
    Word(line, "state", analysis::CommunicatorStateName(told.state()));
    Number(line, "time_ns", told.time_ns());
    emit(line + "}");
  }
}

void RecordLines::WriteCollectives(const v1::Batch& batch, const Emit& emit) {
  model::ForEachCollective(batch, [&](const model::CollectiveRecord& r) {
    const auto replays = replays_.find(r.plan);
    if (replays == replays_.end()) {
      const auto plan = r.plan == 0 ? plans_.end() : plans_.find(r.plan);
      emit(CollectiveLine(r, plan == plans_.end() ? nullptr : &plan->second, r.issue_ns) + "}");
      return;
    }
    emit(CollectiveLine(r, nullptr, r.issue_ns) + ",\"captured\":true}");
    uint64_t number = 0;
    // The copies of one launch in the order in which they ran.
    std::vector<std::pair<uint64_t, const PlanWork*>> ran;
    for (const auto& [of, work] : replays->second) ran.emplace_back(of.first, &work);
    std::sort(ran.begin(), ran.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second->start_ns) < std::tie(b.first, b.second->start_ns);
    });
    for (const auto& [correlation, work] : ran) {
      const auto launch = launch_ns_.find(correlation);
      std::string line = CollectiveLine(r, work, launch == launch_ns_.end() ? 0 : launch->second);
      Number(line, "replay", ++number);
      emit(line + "}");
    }
  }).IgnoreError();
}

}  // namespace gpuprobe::render
