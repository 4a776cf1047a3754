#include "collector/page/log_slicer.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/records/rows.h"
#include "collector/records/system_calls.h"

namespace gpuprobe::page {
namespace {

constexpr uint64_t kIssuedBeforeNs = 5'000'000'000;  // how far a host may be ahead of its device

// NCCL's own ranges repeat what its kernels show.
constexpr char kNcclDomain[] = "NCCL";

Place StreamPlace(uint32_t device, uint32_t context, uint32_t stream) {
  return {.range = false, .where = uint64_t{device} << 32 | stream, .context = context};
}

}  // namespace

LogSlicer::LogSlicer(std::vector<Window> windows, const analysis::AlignedClock& clock, NameTable& names)
    : windows_(std::move(windows)),
      cuts_(windows_.size()),
      host_(windows_.size()),
      names_(names),
      clock_(clock),
      reader_(clock.process()) {}

template <typename... Records>
absl::Status LogSlicer::Read(const v1::Batch& batch) {
  return reader_.Read<Records...>(batch, [this](auto& r) {
    clock_.AlignTimes(r);
    On(r);
  });
}

absl::Status LogSlicer::Apply(const v1::Batch& batch) {
  reader_.Begin(batch);
  const uint64_t now_ns = reader_.Now(batch) == 0 ? 0 : clock_.Align(reader_.Now(batch));
  done_ = now_ns != 0 && std::all_of(windows_.begin(), windows_.end(),
                                     [&](const Window& window) { return now_ns > window.end_ns + kLateNs; });
  absl::Status status = Read<model::CollectiveRecord, model::PlanRecord>(batch);
  const bool owned = std::any_of(batch.launches().begin(), batch.launches().end(),
                                 [](const v1::Launches& launches) { return launches.owner_size() > 0; });
  if (owned) status.Update(Read<model::LaunchRecord>(batch));
  // Before the first window there is nothing to cut.
  const bool early = now_ns != 0 && !reader_.moves() &&
                     std::all_of(windows_.begin(), windows_.end(),
                                 [&](const Window& window) { return now_ns < window.start_ns; });
  if (early) return status;
  status.Update(Read<model::KernelRecord, model::CopyRecord, model::MemsetRecord, model::RangeRecord,
                     model::HostSampleRecord>(batch));
  return status;
}

bool LogSlicer::Near(uint64_t time_ns) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
    return time_ns + kIssuedBeforeNs > window.start_ns && time_ns < window.end_ns;
  });
}

std::string LogSlicer::CallName(const model::CollectiveRecord& call) const {
  const v1::Communicator* comm = definitions_.FindCommunicator(call.comm);
  return absl::StrCat(Text(call.op), " ", analysis::Bytes(call.count * call.element_bytes),
                      comm == nullptr || comm->hash() == 0
                          ? ""
                          : absl::StrCat(" on ", analysis::ShortComm(analysis::CommName(comm->hash()))));
}

void LogSlicer::On(const model::LaunchRecord& r) {
  if (!Near(r.time_ns)) return;
  launches_.Add({.time_ns = r.time_ns,
                 .correlation = r.correlation,
                 .thread = r.thread,
                 .graph = r.graph,
                 .owner = r.owner,
                 .matched = false},
                [](const model::LaunchTable::Launch&) {});
}

void LogSlicer::On(const model::KernelRecord& r) {
  const model::Site* site = definitions_.FindSite(r.site);
  if (site == nullptr) return;
  const v1::KernelSite& in = site->geometry;
  // Its calls are known once all plans are (see Take).
  Add(r, StreamPlace(in.device(), in.context(), in.stream()), SliceKind::kCompute, 0);
}

void LogSlicer::On(const model::CopyRecord& r) {
  Add(r, StreamPlace(r.device, r.context, r.stream), SliceKind::kCopy,
      names_.Intern(absl::StrCat("copy ", std::string(analysis::DirectionName(r.direction)))));
}

void LogSlicer::On(const model::MemsetRecord& r) {
  Add(r, StreamPlace(r.device, r.context, r.stream), SliceKind::kCompute, names_.Intern("memset"));
}

void LogSlicer::On(const model::RangeRecord& r) {
  if (r.kind != v1::RANGE_KIND_PUSH_POP || Text(r.domain) == kNcclDomain) return;
  Add(r, {.range = true, .where = r.thread, .context = 0}, SliceKind::kRange, names_.Intern(Text(r.name)));
}

std::string LogSlicer::DetailsOf(const model::HostSampleRecord& r) const {
  constexpr size_t kMostLines = 24;
  std::vector<std::string> lines;
  if (r.system_call >= 0) {
    std::string call = model::SystemCallOf(r.system_call).name;
    if (call.empty()) call = absl::StrCat("system call ", r.system_call);
    if (r.file != 0) absl::StrAppend(&call, " of ", Text(r.file));
    lines.push_back(std::move(call));
  }
  for (std::string& function : model::PythonStackOf(r, definitions_)) lines.push_back(std::move(function));
  if (lines.size() > kMostLines) {
    lines.resize(kMostLines);
    lines.back() = "...";
  }
  return absl::StrJoin(lines, "\n");
}

void LogSlicer::Add(const model::HostStretch& stretch) {
  if (stretch.end_ns <= stretch.start_ns) return;
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    if (stretch.end_ns <= window.start_ns || stretch.start_ns >= window.end_ns ||
        host_[i].size() >= kMostSlices)
      continue;
    host_[i].push_back({.start_ns = std::max(stretch.start_ns, window.start_ns),
                        .end_ns = std::min(stretch.end_ns, window.end_ns),
                        .thread = names_.Intern(ThreadName(stretch.last.thread)),
                        .name = names_.Intern(model::HostPlaceName(stretch.last, definitions_)),
                        .details = names_.Intern(DetailsOf(stretch.last)),
                        .samples = stretch.samples});
  }
}

template <typename Record>
void LogSlicer::Add(const Record& r, const Place& place, SliceKind kind, uint32_t name) {
  if (r.end_ns <= r.start_ns) return;
  Cut cut;
  cut.placed.place = place;
  cut.placed.slice.kind = kind;
  cut.placed.slice.name = name;
  if constexpr (std::is_same_v<Record, model::KernelRecord>) cut.kernel = r;
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    if (r.end_ns <= window.start_ns || r.start_ns >= window.end_ns || cuts_[i].size() >= kMostSlices)
      continue;
    cut.placed.slice.start_ns = std::max(r.start_ns, window.start_ns);
    cut.placed.slice.end_ns = std::min(r.end_ns, window.end_ns);
    cuts_[i].push_back(cut);
  }
}

const std::string& LogSlicer::Text(uint32_t id) const {
  static const std::string& unknown = *new std::string("?");
  return definitions_.Knows(id) ? definitions_.String(id) : unknown;
}

std::string LogSlicer::ThreadName(uint32_t id) const {
  const model::Thread* thread = definitions_.FindThread(id);
  return thread == nullptr       ? "unnamed thread"
         : thread->main          ? "main thread"
         : !thread->name.empty() ? thread->name
                                 : absl::StrCat("thread ", thread->tid);
}

std::string LogSlicer::NameOf(const Place& place, bool several) const {
  if (place.range) {
    return absl::StrCat("ranges, ", ThreadName(static_cast<uint32_t>(place.where)));
  }
  const uint32_t named = definitions_.NameOfStream(place.context, place.stream());
  const std::string name = named == 0 ? absl::StrCat("stream ", place.stream()) : Text(named);
  return several ? absl::StrCat("GPU ", place.device(), ", ", name) : name;
}

void LogSlicer::Name(const model::KernelRecord& kernel, Slice& slice) {
  const model::Site& site = *definitions_.FindSite(kernel.site);
  const model::LaunchTable::Launch* launch = launches_.Find(kernel.correlation);
  const auto [nature, plan] =
      calls_.Resolve(kernel, site.nature, definitions_.names_are_uncertain(),
                     launch == nullptr ? uint32_t{v1::KERNEL_OWNER_NOT_SAID} : launch->owner);
  slice.kind = model::Communicates(nature) ? SliceKind::kCommunication : SliceKind::kCompute;
  if (plan != nullptr) {
    // A plan of several calls is named after the first one.
    const model::CollectiveRecord& call = plan->calls.front().record;
    slice.name = names_.Intern(CallName(call));
    const v1::Communicator* comm = definitions_.FindCommunicator(call.comm);
    if (comm == nullptr || comm->hash() == 0) return;
    slice.seq = call.seq;
    slice.comm = names_.Intern(analysis::CommName(comm->hash())) + 1;
  } else if (model::IsMisnamed(nature, site.nature)) {
    slice.name = names_.Intern(nature == model::KernelNature::kNccl ? "NCCL kernel" : "unknown kernel");
  } else {
    const auto [it, added] = kernel_names_.try_emplace(kernel.site);
    if (added) {
      it->second = names_.Intern(site.operation.empty() ? analysis::Demangle(Text(site.geometry.name()))
                                                        : std::string(site.operation));
    }
    slice.name = it->second;
  }
}

std::vector<RankSlices> LogSlicer::Take() {
  stretches_.Finish([this](const model::HostStretch& stretch) { Add(stretch); });
  std::vector<RankSlices> out;
  for (size_t i = 0; i < windows_.size(); ++i) {
    std::vector<PlacedSlice> placed;
    for (Cut& cut : std::exchange(cuts_[i], {})) {
      if (cut.kernel.has_value()) Name(*cut.kernel, cut.placed.slice);
      placed.push_back(cut.placed);
    }
    out.push_back(LayOut(std::move(placed),
                         [this](const Place& place, bool several) { return NameOf(place, several); }));
    JoinShort(windows_[i].end_ns - windows_[i].start_ns, kMostJoinedSlices, out.back().slices);
    out.back().host = std::exchange(host_[i], {});
    KeepLongest(kMostHostSlices, out.back().host);
  }
  return out;
}

}  // namespace gpuprobe::page
