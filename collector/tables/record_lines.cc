#include "collector/tables/record_lines.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/model/calls/collective_kernels.h"
#include "collector/model/records.h"
#include "gpuprobe/v1/wire_lines.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::tables {

namespace {

constexpr size_t kMaxSiteId = size_t{1} << 22;

// Empty for a kind that has no number.
JsonValue NumberOf(v1::PayloadKind kind, uint64_t value) {
  switch (kind) {
    case v1::PAYLOAD_KIND_UINT64:
      return {absl::StrCat(value)};
    case v1::PAYLOAD_KIND_INT64:
      return {absl::StrCat(static_cast<int64_t>(value))};
    case v1::PAYLOAD_KIND_DOUBLE:
      return {nlohmann::json(std::bit_cast<double>(value)).dump()};
    default:
      return {};
  }
}

JsonValue Triple(uint32_t x, uint32_t y, uint32_t z) { return {absl::StrCat("[", x, ",", y, ",", z, "]")}; }

// Records with the fields of their lines that have to be found out. Some take the place of an id of the same
// name.
template <typename Record>
struct OnDevice : Record {
  JsonValue device_name{};
  JsonValue stream_name{};
};

struct KernelLine : OnDevice<model::KernelRecord> {
  uint32_t device = 0;
  uint32_t stream = 0;
  JsonValue name{};
  JsonValue grid{};
  JsonValue block{};
};

struct SmallAllocationsLine : model::SmallAllocationsRecord {
  uint64_t time_ns = 0;
};

struct PoolLine : model::PoolLevelRecord {
  bool destroyed = false;
};

struct TensorLine : model::TensorRecord {
  uint64_t bytes = 0;
};

struct RangeLine : model::RangeRecord {
  uint32_t tid = 0;
  JsonValue range{};
  JsonValue category_name{};
  JsonValue payload{};
  JsonValue fields{};
};

struct LaunchLine : model::LaunchRecord {
  uint32_t tid = 0;
  JsonValue thread{};
};

}  // namespace

// The device, stream and times are those of the kernels that its plan launched, if there are any.
struct RecordLines::CollectiveLine : model::CollectiveRecord {
  std::optional<uint32_t> device{};
  std::optional<uint32_t> stream{};
  std::optional<uint64_t> start_ns{};
  std::optional<uint64_t> end_ns{};
  std::optional<uint64_t> correlation{};
  JsonValue comm{};
  int32_t comm_rank = 0;
  int32_t comm_ranks = 0;
  uint64_t bytes = 0;
  bool captured = false;
  uint64_t replay = 0;
};

template <typename Record, typename Fields>
std::string RecordLines::LineFor(const Fields& fields, const char* kind) const {
  Line line(kind, identity_, strings_);
  LineOf<Record>::Put(fields, line);
  return std::move(line).End();
}

template <typename Record, typename Fields>
std::string RecordLines::LineFor(const Fields& fields) const {
  return LineFor<Record>(fields, LineOf<Record>::kKind);
}

template <typename Fields>
void RecordLines::FindNames(uint32_t device, uint32_t context, uint32_t stream, Fields& fields) const {
  if (const auto name = device_names_.find(device); name != device_names_.end())
    fields.device_name = {strings_.Quoted(name->second)};
  if (const auto name = stream_names_.find({context, stream}); name != stream_names_.end())
    fields.stream_name = {strings_.Quoted(name->second)};
}

void RecordLines::LearnDefinitions(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) strings_.Define(def.id(), def.value());
  for (const v1::KernelSite& site : batch.kernel_sites()) {
    sites_[site.id()] = site;
    if (site.id() >= kMaxSiteId) continue;
    if (site.id() >= collective_sites_.size()) collective_sites_.resize(site.id() + 1);
    const std::string_view name = strings_.Quoted(site.name());
    collective_sites_[site.id()] = model::IsCollectiveKernel(name.substr(1));
  }
  for (const v1::ThreadDef& thread : batch.threads()) {
    thread_ids_[thread.id()] = thread.tid();
    thread_names_[thread.id()] =
        QuotedText(thread.given_name().empty() ? thread.name() : thread.given_name()).text;
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
  status = model::ForEachRangePayload(batch, [this](const model::RangePayloadRecord& r) {
    const std::string number = NumberOf(r.kind, r.value).text;
    if (number.empty()) return;
    std::string& fields = fields_[r.range];
    absl::StrAppend(&fields, fields.empty() ? "" : ",", strings_.Quoted(r.field), ":", number);
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
  WriteAsTheyAre<model::SyncRecord>(batch, emit);
  WriteAsTheyAre<model::OverheadRecord>(batch, emit);
  WriteMemory(batch, emit);
  WriteRanges(batch, emit);
  WriteLaunches(batch, emit);
  WriteCommunicators(batch, emit);
  WriteCollectives(batch, emit);
  return absl::OkStatus();
}

void RecordLines::WriteDeviceRecords(const v1::Batch& batch, const Emit& emit) {
  // Columns were checked by Learn; a batch that failed there is never written.
  model::ForEachKernel(batch, [&](const model::KernelRecord& r) {
    const v1::KernelSite& site = sites_[r.site];
    KernelLine line{{r}};
    line.device = site.device();
    line.stream = site.stream();
    line.name = {strings_.Quoted(site.name())};
    line.grid = Triple(site.grid_x(), site.grid_y(), site.grid_z());
    line.block = Triple(site.block_x(), site.block_y(), site.block_z());
    FindNames(site.device(), site.context(), site.stream(), line);
    emit(LineFor<model::KernelRecord>(line));
    if (Unexplained(r)) emit(UnexplainedLine(r, site));
  }).IgnoreError();
  WriteOnDevice<model::CopyRecord>(batch, emit);
  WriteOnDevice<model::MemsetRecord>(batch, emit);
  WriteOnDevice<model::GraphRunRecord>(batch, emit);
}

template <typename Record>
void RecordLines::WriteOnDevice(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachRow<Record>(batch, [&](const Record& r) {
    OnDevice<Record> line{r};
    FindNames(r.device, r.context, r.stream, line);
    emit(LineFor<Record>(line));
  }).IgnoreError();
}

template <typename Record>
void RecordLines::WriteAsTheyAre(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachRow<Record>(batch, [&](const Record& r) { emit(LineFor<Record>(r)); }).IgnoreError();
}

void RecordLines::WriteMemory(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachAllocation(batch, [&](const model::AllocationRecord& r) {
    emit(r.op == v1::ALLOCATION_OP_FREE ? LineFor<model::AllocationRecord>(r, "free")
                                        : LineFor<model::AllocationRecord>(r));
  }).IgnoreError();
  model::ForEachTensor(batch, [&](const model::TensorRecord& r) {
    const TensorLine line{r, model::Magnitude(r.change_bytes)};
    emit(r.change_bytes < 0 ? LineFor<model::TensorRecord>(line, "tensor_free")
                            : LineFor<model::TensorRecord>(line));
  }).IgnoreError();
  model::ForEachSmallAllocations(batch, [&](const model::SmallAllocationsRecord& r) {
    emit(LineFor<model::SmallAllocationsRecord>(SmallAllocationsLine{r, r.end_ns}));
  }).IgnoreError();
  model::ForEachPoolLevel(batch, [&](const model::PoolLevelRecord& r) {
    emit(LineFor<model::PoolLevelRecord>(PoolLine{r, r.state == v1::POOL_STATE_DESTROYED}));
  }).IgnoreError();
}

void RecordLines::WriteRanges(const v1::Batch& batch, const Emit& emit) {
  model::ForEachRange(batch, [&](const model::RangeRecord& r) {
    RangeLine line{r};
    line.tid = thread_ids_[r.thread];
    const bool push_pop = r.kind == v1::RANGE_KIND_PUSH_POP;
    line.range = {push_pop ? "\"push_pop\"" : r.kind == v1::RANGE_KIND_MARK ? "\"mark\"" : "\"start_end\""};
    if (const auto name = category_names_.find({r.domain, r.category}); name != category_names_.end())
      line.category_name = {strings_.Quoted(name->second)};
    line.payload = NumberOf(r.payload_kind, r.payload);
    if (const auto fields = fields_.find(r.id); fields != fields_.end())
      line.fields = {absl::StrCat("{", fields->second, "}")};
    emit(LineFor<model::RangeRecord>(line));
  }).IgnoreError();
}

void RecordLines::WriteLaunches(const v1::Batch& batch, const Emit& emit) {
  model::ForEachLaunch(batch, [&](const model::LaunchRecord& r) {
    const auto name = thread_names_.find(r.thread);
    const JsonValue thread{name == thread_names_.end() ? "\"\"" : name->second};
    emit(LineFor<model::LaunchRecord>(LaunchLine{r, thread_ids_[r.thread], thread}));
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
  Line line("collective", identity_, strings_);
  line.Put("device", site.device());
  line.Put("stream", site.stream());
  line.Put("start_ns", kernel.start_ns);
  line.Put("end_ns", kernel.end_ns);
  line.Put("correlation", kernel.correlation);
  line.Word("op", model::OperationOfKernel(std::string_view(strings_.Quoted(site.name())).substr(1)));
  line.Word("comm", "unknown");
  line.Put("plan", 0);
  line.Put("source", v1::CALL_SOURCE_KERNEL_NAME);
  return std::move(line).End();
}

RecordLines::CollectiveLine RecordLines::LineOfCall(const model::CollectiveRecord& call,
                                                    const PlanWork* work) {
  CollectiveLine line{call};
  if (work != nullptr) {
    line.device = work->device;
    line.stream = work->stream;
    line.start_ns = work->start_ns;
    line.end_ns = work->end_ns;
    line.correlation = work->correlation;
  }
  const v1::Communicator& comm = communicators_[call.comm];
  line.comm = QuotedText(analysis::CommName(comm.hash()));
  line.comm_rank = comm.rank();
  line.comm_ranks = comm.ranks();
  line.bytes = call.count * call.element_bytes;
  return line;
}

void RecordLines::WriteCommunicators(const v1::Batch& batch, const Emit& emit) {
  for (const v1::Communicator& told : batch.communicators()) {
    if (!told_communicators_.insert({told.id(), told.state()}).second) continue;
    const v1::Communicator& comm = communicators_[told.id()];
    Line line("communicator", identity_, strings_);
    line.Word("comm", analysis::CommName(comm.hash()));
    const auto parent = communicators_.find(comm.parent());
    if (parent != communicators_.end()) line.Word("parent", analysis::CommName(parent->second.hash()));
    if (comm.name() != 0) line.PutString("comm_name", comm.name());
    line.Put("comm_rank", comm.rank());
    line.Put("comm_ranks", comm.ranks());
    line.Put("device", comm.device());
    line.Word("state", analysis::CommunicatorStateName(told.state()));
    line.Put("time_ns", told.time_ns());
    emit(std::move(line).End());
  }
}

void RecordLines::WriteCollectives(const v1::Batch& batch, const Emit& emit) {
  model::ForEachCollective(batch, [&](const model::CollectiveRecord& r) {
    const auto replays = replays_.find(r.plan);
    if (replays != replays_.end()) return WriteReplays(r, replays->second, emit);
    const auto plan = r.plan == 0 ? plans_.end() : plans_.find(r.plan);
    emit(LineFor<model::CollectiveRecord>(LineOfCall(r, plan == plans_.end() ? nullptr : &plan->second)));
  }).IgnoreError();
}

void RecordLines::WriteReplays(const model::CollectiveRecord& call, const Replays& replays,
                               const Emit& emit) {
  CollectiveLine captured = LineOfCall(call, nullptr);
  captured.captured = true;
  emit(LineFor<model::CollectiveRecord>(captured));
  // The copies of one launch in the order in which they ran.
  std::vector<std::pair<uint64_t, const PlanWork*>> ran;
  for (const auto& [of, work] : replays) ran.emplace_back(of.first, &work);
  std::sort(ran.begin(), ran.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->start_ns) < std::tie(b.first, b.second->start_ns);
  });
  uint64_t number = 0;
  for (const auto& [correlation, work] : ran) {
    const auto launch = launch_ns_.find(correlation);
    CollectiveLine line = LineOfCall(call, work);
    line.issue_ns = launch == launch_ns_.end() ? 0 : launch->second;
    line.replay = ++number;
    emit(LineFor<model::CollectiveRecord>(line));
  }
}

}  // namespace gpuprobe::tables
