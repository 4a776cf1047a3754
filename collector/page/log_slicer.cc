#include "collector/page/log_slicer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/model/calls/collective_kernels.h"
#include "collector/model/records.h"

namespace gpuprobe::page {
namespace {

constexpr size_t kMostDefinitions = size_t{1} << 20;
constexpr size_t kMostCalls = size_t{1} << 20;
constexpr uint64_t kIssuedBeforeNs = 5'000'000'000;  // by how much a host may be ahead of its device

// NCCL's own ranges repeat what its kernels show.
constexpr char kNcclDomain[] = "NCCL";

Place StreamPlace(uint32_t device, uint32_t context, uint32_t stream) {
  return {.range = false, .where = uint64_t{device} << 32 | stream, .context = context};
}

}  // namespace

LogSlicer::LogSlicer(std::vector<Window> windows, NameTable& names)
    : windows_(std::move(windows)), cuts_(windows_.size()), names_(names) {}

absl::Status LogSlicer::Apply(const v1::Batch& batch) {
  LearnDefinitions(batch);
  const uint64_t now_ns = batch.clock().realtime_ns();
  done_ = now_ns != 0 && std::all_of(windows_.begin(), windows_.end(),
                                     [&](const Window& window) { return now_ns > window.end_ns + kLateNs; });
  absl::Status status = LearnCalls(batch);
  // Before the first window there is nothing to cut.
  const bool early = now_ns != 0 && std::all_of(windows_.begin(), windows_.end(), [&](const Window& window) {
                       return now_ns < window.start_ns;
                     });
  if (early) return status;
  status.Update(CutDeviceRecords(batch));
  status.Update(CutRanges(batch));
  return status;
}

void LogSlicer::LearnDefinitions(const v1::Batch& batch) {
  if (strings_.size() + sites_.size() > kMostDefinitions) return;
  for (const v1::StringDef& def : batch.strings()) strings_[def.id()] = def.value();
  for (const v1::ThreadDef& def : batch.threads()) {
    threads_[def.id()] = def.main()                  ? "main thread"
                         : !def.given_name().empty() ? def.given_name()
                         : !def.name().empty()       ? def.name()
                                                     : absl::StrCat("thread ", def.tid());
  }
  for (const v1::Communicator& comm : batch.communicators()) {
    if (comm.hash() != 0) communicators_[comm.id()] = comm.hash();
  }
  for (const v1::ObjectName& object : batch.object_names()) {
    if (object.kind() == v1::NAMED_OBJECT_STREAM)
      stream_names_[{object.context(), object.id()}] = object.name();
  }
  for (const v1::KernelSite& site : batch.kernel_sites()) {
    const std::string& mangled = Text(site.name());
    const std::string_view op = model::OperationOfKernel(mangled);
    sites_[site.id()] = {.name = names_.Intern(op.empty() ? analysis::Demangle(mangled) : std::string(op)),
                         .context = site.context(),
                         .stream = site.stream(),
                         .device = site.device(),
                         .kind = op.empty() ? SliceKind::kCompute : SliceKind::kCommunication};
  }
}

bool LogSlicer::Near(uint64_t time_ns) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
    return time_ns + kIssuedBeforeNs > window.start_ns && time_ns < window.end_ns;
  });
}

std::string LogSlicer::CallName(uint32_t op, uint64_t bytes, uint32_t comm) const {
  const auto hash = communicators_.find(comm);
  return absl::StrCat(Text(op), " ", analysis::Bytes(bytes),
                      hash == communicators_.end()
                          ? ""
                          : absl::StrCat(" on ", analysis::ShortComm(analysis::CommName(hash->second))));
}

absl::Status LogSlicer::LearnCalls(const v1::Batch& batch) {
  if (calls_.size() > kMostCalls || plan_of_.size() > kMostCalls) return absl::OkStatus();
  absl::Status status = model::ForEachCollective(batch, [&](const model::CollectiveRecord& r) {
    if (r.plan == 0 || !Near(r.issue_ns)) return;
    const auto [call, added] = calls_.try_emplace(r.plan);
    // A plan of several calls is named after the first one.
    if (added)
      call->second = {.name = names_.Intern(CallName(r.op, r.count * r.element_bytes, r.comm)), .seq = r.seq};
  });
  status.Update(model::ForEachPlan(batch, [&](const model::PlanRecord& r) {
    if (r.graph_node == 0 && r.correlation != 0 && calls_.contains(r.plan)) plan_of_[r.correlation] = r.plan;
  }));
  return status;
}

absl::Status LogSlicer::CutDeviceRecords(const v1::Batch& batch) {
  absl::Status status = model::ForEachKernel(batch, [&](const model::KernelRecord& r) {
    const auto found = sites_.find(r.site);
    if (found == sites_.end()) return;
    const Site& site = found->second;
    PlacedSlice cut{.place = StreamPlace(site.device, site.context, site.stream), .slice = {}};
    cut.slice.kind = site.kind;
    cut.slice.name = site.name;
    // Which call it is, is known once all plans are: see Take.
    if (site.kind == SliceKind::kCommunication && r.graph_node == 0) cut.slice.seq = r.correlation;
    Add(r.start_ns, r.end_ns, cut);
  });
  status.Update(model::ForEachCopy(batch, [&](const model::CopyRecord& r) {
    PlacedSlice cut{.place = StreamPlace(r.device, r.context, r.stream), .slice = {}};
    cut.slice.kind = SliceKind::kCopy;
    cut.slice.name = names_.Intern(absl::StrCat("copy ", std::string(analysis::DirectionName(r.direction))));
    Add(r.start_ns, r.end_ns, cut);
  }));
  status.Update(model::ForEachMemset(batch, [&](const model::MemsetRecord& r) {
    PlacedSlice cut{.place = StreamPlace(r.device, r.context, r.stream), .slice = {}};
    cut.slice.name = names_.Intern("memset");
    Add(r.start_ns, r.end_ns, cut);
  }));
  return status;
}

absl::Status LogSlicer::CutRanges(const v1::Batch& batch) {
  return model::ForEachRange(batch, [&](const model::RangeRecord& r) {
    if (r.kind != v1::RANGE_KIND_PUSH_POP || Text(r.domain) == kNcclDomain) return;
    PlacedSlice cut{.place = {.range = true, .where = r.thread, .context = 0}, .slice = {}};
    cut.slice.kind = SliceKind::kRange;
    cut.slice.name = names_.Intern(Text(r.name));
    Add(r.start_ns, r.end_ns, cut);
  });
}

void LogSlicer::Add(uint64_t start_ns, uint64_t end_ns, PlacedSlice cut) {
  if (end_ns <= start_ns) return;
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    if (end_ns <= window.start_ns || start_ns >= window.end_ns || cuts_[i].size() >= kMostSlices) continue;
    cut.slice.start_ns = std::max(start_ns, window.start_ns);
    cut.slice.end_ns = std::min(end_ns, window.end_ns);
    cuts_[i].push_back(cut);
  }
}

const std::string& LogSlicer::Text(uint32_t id) const {
  static const std::string& unknown = *new std::string("?");
  const auto found = strings_.find(id);
  return found == strings_.end() ? unknown : found->second;
}

std::string LogSlicer::NameOf(const Place& place, bool several) const {
  if (place.range) {
    const auto thread = threads_.find(static_cast<uint32_t>(place.where));
    return absl::StrCat("ranges, ", thread == threads_.end() ? "unnamed thread" : thread->second);
  }
  const auto named = stream_names_.find({place.context, place.stream()});
  const std::string name =
      named == stream_names_.end() ? absl::StrCat("stream ", place.stream()) : Text(named->second);
  return several ? absl::StrCat("GPU ", place.device(), ", ", name) : name;
}

std::vector<RankSlices> LogSlicer::Take() {
  std::vector<RankSlices> out;
  for (size_t i = 0; i < windows_.size(); ++i) {
    for (PlacedSlice& cut : cuts_[i]) {
      if (cut.slice.kind != SliceKind::kCommunication) continue;
      const auto plan = plan_of_.find(cut.slice.seq);
      cut.slice.seq = 0;
      if (plan == plan_of_.end()) continue;
      const Call& call = calls_[plan->second];
      cut.slice.name = call.name;
      cut.slice.seq = call.seq;
    }
    out.push_back(LayOut(std::exchange(cuts_[i], {}),
                         [this](const Place& place, bool several) { return NameOf(place, several); }));
    JoinShort(windows_[i].end_ns - windows_[i].start_ns, kMostJoinedSlices, out.back().slices);
  }
  return out;
}

}  // namespace gpuprobe::page
