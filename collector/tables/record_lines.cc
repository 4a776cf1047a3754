#include "collector/tables/record_lines.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/analysis/steps/step_report.h"
#include "collector/analysis/work/kernel_class.h"
#include "collector/records/python_files.h"
#include "collector/records/rows.h"
#include "collector/records/system_calls.h"
#include "collector/report/words.h"
#include "collector/tables/row_text.h"
#include "gpuprobe/v1/wire_lines.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::tables {

namespace {

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

// Records extended by line fields that have to be looked up. Some replace an id of the same name.
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

struct DriverCallLine : model::DriverCallRecord {
  uint32_t tid = 0;
};

struct TracedCallLine : model::TracedCallRecord {
  JsonValue comm{};
};

struct CallTimeLine : model::CallTimeRecord {
  JsonValue comm{};
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
  Line line(kind, identity_, definitions_);
  LineOf<Record>::Put(fields, line);
  return std::move(line).End();
}

template <typename Record, typename Fields>
std::string RecordLines::LineFor(const Fields& fields) const {
  return LineFor<Record>(fields, LineOf<Record>::kKind);
}

template <typename Fields>
void RecordLines::FindNames(uint32_t device, uint32_t context, uint32_t stream, Fields& fields) const {
  if (const uint32_t name = definitions_.NameOfDevice(device); name != 0)
    fields.device_name = {definitions_.String(name)};
  if (const uint32_t name = definitions_.NameOfStream(context, stream); name != 0)
    fields.stream_name = {definitions_.String(name)};
}

void RecordLines::LearnHello(const v1::Hello& hello) {
  identity_ = hello.identity();
  if (placed_ != nullptr) process_work_ = placed_->Of(hello);
}

std::string RecordLines::InTable(std::string line, uint64_t start_ns, uint64_t end_ns) const {
  if (!for_tables_ || process_work_ == nullptr) return line;
  const std::optional<PlacedWork::Place> place = process_work_->Find(start_ns, end_ns);
  if (!place.has_value()) return line;
  line.pop_back();
  absl::StrAppend(&line, ",\"step\":", place->step, ",\"phase\":\"", report::Word(place->phase), "\"}");
  return line;
}

const RecordLines::KernelNames& RecordLines::NamesOf(uint32_t name_id) {
  const auto [found, is_new] = kernel_names_.try_emplace(name_id);
  if (!is_new) return found->second;
  const std::string quoted = definitions_.String(name_id);
  const std::string readable = analysis::Demangle(TextOf(quoted));
  found->second = {.name = Quoted(readable),
                   .symbol = quoted,
                   .kernel_class = Quoted(report::Word(analysis::KernelClassOf(readable)))};
  return found->second;
}

void RecordLines::LearnKernel(const model::KernelRecord& kernel) {
  const model::Site* site = definitions_.FindSite(kernel.site);
  if (site == nullptr) return;
  const PlanWork work{.start_ns = kernel.start_ns,
                      .end_ns = kernel.end_ns,
                      .correlation = kernel.correlation,
                      .device = site->geometry.device(),
                      .stream = site->geometry.stream()};
  if (const uint64_t plan = work_plans_.Of(kernel.correlation, 0).plan; plan != 0)
    return NoteWork(work, plans_[plan]);
  // A node of a graph that carries calls is NCCL's under any name, where names may be wrong.
  if (site->nature == model::KernelNature::kNccl ||
      (definitions_.names_are_uncertain() && work_plans_.Carries(kernel.graph_node))) {
    work_.emplace_back(kernel.graph_node, work);
  } else if (definitions_.names_are_uncertain()) {
    AddEarly(kernel.graph_node, work);  // it may have ended before the call that launched it returned
  }
}

void RecordLines::LearnCopy(const model::CopyRecord& copy) {
  AddEarly(copy.graph_node, {.start_ns = copy.start_ns,
                             .end_ns = copy.end_ns,
                             .correlation = copy.correlation,
                             .device = copy.device,
                             .stream = copy.stream});
}

void RecordLines::AddEarly(uint64_t graph_node, const PlanWork& work) {
  early_.emplace_back(graph_node, work);
  if (early_.size() > kMaxEarly) KeepEarliest();
}

void RecordLines::KeepEarliest() {
  const auto& [node, work] = early_.front();
  if (work_plans_.Carries(node) || work_plans_.Of(work.correlation, node).plan != 0)
    work_.push_back(early_.front());
  early_.pop_front();
}

void RecordLines::NoteWork(const PlanWork& part, PlanWork& work) {
  const uint64_t end_ns = std::max(work.end_ns, part.end_ns);
  if (part.start_ns < work.start_ns) work = part;
  work.end_ns = end_ns;
}

void RecordLines::ResolveWork() {
  while (!early_.empty()) KeepEarliest();
  for (const auto& [node, work] : work_) {
    const model::CarriedPlan carried = work_plans_.Of(work.correlation, node);
    if (carried.plan == 0) continue;
    NoteWork(work,
             node == 0 ? plans_[carried.plan] : replays_[carried.plan][{work.correlation, carried.copy}]);
  }
  work_.clear();
}

absl::Status RecordLines::Learn(const v1::Batch& batch) {
  definitions_.Learn(batch);
  if (batch.has_nccl_identity()) model::AdoptNcclIdentity(batch.nccl_identity(), identity_);
  absl::Status status = model::ForEachPlan(batch, [this](const model::PlanRecord& r) {
    if (r.plan == 0 && r.correlation != 0) return;
    work_plans_.Add(r, true);
    if (r.graph_node != 0 && r.plan != 0) replays_.try_emplace(r.plan);
  });
  if (!status.ok()) return status;
  status = model::ForEachRangePayload(batch, [this](const model::RangePayloadRecord& r) {
    const std::string number = NumberOf(r.kind, r.value).text;
    if (number.empty()) return;
    std::string& fields = fields_[r.range];
    absl::StrAppend(&fields, fields.empty() ? "" : ",", definitions_.String(r.field), ":", number);
  });
  if (!status.ok()) return status;
  const bool owned = std::any_of(batch.launches().begin(), batch.launches().end(),
                                 [](const v1::Launches& launches) { return launches.owner_size() > 0; });
  if (!replays_.empty() || owned) {
    status = model::ForEachLaunch(batch, [this](const model::LaunchRecord& r) {
      if (!replays_.empty()) launch_ns_[r.correlation] = r.time_ns;
      if (r.owner == v1::KERNEL_OWNER_OTHER) not_nccl_.insert(r.correlation);
    });
    if (!status.ok()) return status;
  }
  status = model::ForEachCopy(batch, [this](const model::CopyRecord& r) { LearnCopy(r); });
  if (!status.ok()) return status;
  return model::ForEachKernel(batch, [this](const model::KernelRecord& r) { LearnKernel(r); });
}

absl::Status RecordLines::Write(const v1::Batch& batch, const Emit& emit) {
  ResolveWork();
  WriteDeviceRecords(batch, emit);
  WriteAsTheyAre<model::SyncRecord>(batch, emit);
  WriteAsTheyAre<model::OverheadRecord>(batch, emit);
  WriteDriverCalls(batch, emit);
  WriteMemory(batch, emit);
  WriteRanges(batch, emit);
  WriteLaunches(batch, emit);
  WriteHostSamples(batch, emit);
  WriteCommunicators(batch, emit);
  WriteCollectives(batch, emit);
  WriteAsTheyAre<model::TracedStepRecord>(batch, emit);
  WriteTraced<model::TracedCallRecord, TracedCallLine>(batch, emit);
  WriteTraced<model::CallTimeRecord, CallTimeLine>(batch, emit);
  return absl::OkStatus();
}

void RecordLines::WriteDeviceRecords(const v1::Batch& batch, const Emit& emit) {
  // Columns were checked by Learn; a batch that failed there is never written.
  model::ForEachKernel(batch, [&](const model::KernelRecord& r) {
    static const model::Site kUnknown;
    const model::Site* known = definitions_.FindSite(r.site);
    const v1::KernelSite& site = (known == nullptr ? kUnknown : *known).geometry;
    KernelLine line{{r}};
    line.device = site.device();
    line.stream = site.stream();
    line.name = {definitions_.String(site.name())};
    line.grid = Triple(site.grid_x(), site.grid_y(), site.grid_z());
    line.block = Triple(site.block_x(), site.block_y(), site.block_z());
    FindNames(site.device(), site.context(), site.stream(), line);
    if (for_tables_) {
      const KernelNames& names = NamesOf(site.name());
      line.name = {names.name};
      std::string row = LineFor<model::KernelRecord>(line);
      row.pop_back();
      absl::StrAppend(&row, ",\"class\":", names.kernel_class, ",\"symbol\":", names.symbol, "}");
      emit(InTable(std::move(row), r.start_ns, r.end_ns));
    } else {
      emit(LineFor<model::KernelRecord>(line));
    }
    if (known != nullptr && Unexplained(r, *known)) emit(UnexplainedLine(r, *known));
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
    emit(InTable(LineFor<Record>(line), r.start_ns, r.end_ns));
  }).IgnoreError();
}

template <typename Record>
void RecordLines::WriteAsTheyAre(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachRow<Record>(batch, [&](const Record& r) { emit(LineFor<Record>(r)); }).IgnoreError();
}

template <typename Record, typename Line>
void RecordLines::WriteTraced(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachRow<Record>(batch, [&](const Record& r) {
    Line line{r};
    line.comm = {Quoted(analysis::CommName(CommunicatorOf(r.comm).hash()))};
    emit(LineFor<Record>(line));
  }).IgnoreError();
}

void RecordLines::WriteDriverCalls(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachDriverCall(batch, [&](const model::DriverCallRecord& r) {
    const model::Thread* thread = definitions_.FindThread(r.thread);
    emit(LineFor<model::DriverCallRecord>(DriverCallLine{r, thread == nullptr ? 0 : thread->tid}));
  }).IgnoreError();
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
    if (const model::Thread* thread = definitions_.FindThread(r.thread); thread != nullptr)
      line.tid = thread->tid;
    const bool push_pop = r.kind == v1::RANGE_KIND_PUSH_POP;
    line.range = {push_pop ? "\"push_pop\"" : r.kind == v1::RANGE_KIND_MARK ? "\"mark\"" : "\"start_end\""};
    if (const uint32_t name = definitions_.NameOfCategory(r.domain, r.category); name != 0)
      line.category_name = {definitions_.String(name)};
    line.payload = NumberOf(r.payload_kind, r.payload);
    if (const auto fields = fields_.find(r.id); fields != fields_.end())
      line.fields = {absl::StrCat("{", fields->second, "}")};
    emit(LineFor<model::RangeRecord>(line));
  }).IgnoreError();
}

void RecordLines::WriteLaunches(const v1::Batch& batch, const Emit& emit) {
  model::ForEachLaunch(batch, [&](const model::LaunchRecord& r) {
    const model::Thread* thread = definitions_.FindThread(r.thread);
    emit(LineFor<model::LaunchRecord>(thread == nullptr ? LaunchLine{r, 0, {definitions_.String(0)}}
                                                        : LaunchLine{r, thread->tid, {thread->name}}));
  }).IgnoreError();
}

const v1::HostFrame* RecordLines::OwnFrame(const v1::HostFrame* frame) const {
  while (frame != nullptr) {
    std::string_view file = definitions_.String(frame->file());  // quoted
    file.remove_prefix(std::min<size_t>(1, file.size()));
    if (!model::IsLibraryFile(file)) return frame;
    frame = definitions_.FindFrame(frame->caller());
  }
  return nullptr;
}

void RecordLines::WriteHostSamples(const v1::Batch& batch, const Emit& emit) const {
  model::ForEachHostSample(batch, [&](const model::HostSampleRecord& r) {
    Line line("host_sample", identity_, definitions_);
    const model::Thread* thread = definitions_.FindThread(r.thread);
    line.Put("time_ns", r.time_ns);
    line.Put("since_ns", r.since_ns);
    line.Put("tid", thread == nullptr ? 0 : thread->tid);
    line.Put("thread", JsonValue{thread == nullptr ? definitions_.String(0) : thread->name});
    line.Put("in_gap", r.in_gap);
    line.Put("state", r.state);
    line.PutString("call", r.call);
    line.Put("call_ns", r.call_since_ns == 0 ? 0 : r.time_ns - r.call_since_ns);
    line.Word("system_call", r.system_call < 0 ? "" : model::SystemCallOf(r.system_call).name);
    line.PutString("about", r.file);
    line.Put("run_delay_ns", r.run_delay_ns);
    line.Put("stack", r.stack);
    const v1::HostFrame* const at = definitions_.FindFrame(r.frame);
    const v1::HostFrame* const own = OwnFrame(at);
    line.PutString("function", at == nullptr ? 0 : at->function());
    line.PutString("file", at == nullptr ? 0 : at->file());
    line.Put("line", at == nullptr ? 0 : at->line());
    line.PutString("own_function", own == nullptr ? 0 : own->function());
    line.PutString("own_file", own == nullptr ? 0 : own->file());
    line.Put("own_line", own == nullptr ? 0 : own->line());
    emit(std::move(line).End());
  }).IgnoreError();
}

bool RecordLines::Unexplained(const model::KernelRecord& kernel, const model::Site& site) const {
  if (site.nature != model::KernelNature::kNccl) return false;
  return work_plans_.Of(kernel.correlation, kernel.graph_node).plan == 0 &&
         model::Communicates(model::NatureOf({.named = site.nature,
                                              .owner = not_nccl_.contains(kernel.correlation)
                                                           ? uint32_t{v1::KERNEL_OWNER_OTHER}
                                                           : uint32_t{v1::KERNEL_OWNER_NOT_SAID}}));
}

// Describes a collective that no call explains, by its kernel's name.
std::string RecordLines::UnexplainedLine(const model::KernelRecord& kernel, const model::Site& site) const {
  Line line("collective", identity_, definitions_);
  line.Put("device", site.geometry.device());
  line.Put("stream", site.geometry.stream());
  line.Put("start_ns", kernel.start_ns);
  line.Put("end_ns", kernel.end_ns);
  line.Put("correlation", kernel.correlation);
  line.Word("op", site.operation);
  line.Word("comm", "unknown");
  line.Put("plan", 0);
  line.Put("source", v1::CALL_SOURCE_KERNEL_NAME);
  return InTable(std::move(line).End(), kernel.start_ns, kernel.end_ns);
}

const v1::Communicator& RecordLines::CommunicatorOf(uint32_t id) const {
  const v1::Communicator* comm = definitions_.FindCommunicator(id);
  return comm == nullptr ? v1::Communicator::default_instance() : *comm;
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
  const v1::Communicator& comm = CommunicatorOf(call.comm);
  line.comm = {Quoted(analysis::CommName(comm.hash()))};
  line.comm_rank = comm.rank();
  line.comm_ranks = comm.ranks();
  line.bytes = call.count * call.element_bytes;
  return line;
}

void RecordLines::WriteCommunicators(const v1::Batch& batch, const Emit& emit) {
  for (const v1::Communicator& told : batch.communicators()) {
    if (!told_communicators_.insert({told.id(), told.state()}).second) continue;
    const v1::Communicator& comm = CommunicatorOf(told.id());
    Line line("communicator", identity_, definitions_);
    line.Word("comm", analysis::CommName(comm.hash()));
    if (const v1::Communicator* parent = definitions_.FindCommunicator(comm.parent()); parent != nullptr)
      line.Word("parent", analysis::CommName(parent->hash()));
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
    const PlanWork* work = plan == plans_.end() ? nullptr : &plan->second;
    std::string line = LineFor<model::CollectiveRecord>(LineOfCall(r, work));
    emit(work == nullptr ? line : InTable(std::move(line), work->start_ns, work->end_ns));
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
    emit(InTable(LineFor<model::CollectiveRecord>(line), work->start_ns, work->end_ns));
  }
}

}  // namespace gpuprobe::tables
