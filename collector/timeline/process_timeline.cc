#include "collector/timeline/process_timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/timeline/collective_words.h"

namespace gpuprobe::timeline {
namespace {

constexpr char kLaunchKernel[] = "cudaLaunchKernel";
constexpr char kLaunchGraph[] = "cudaGraphLaunch";

std::string MemoryWord(v1::MemoryKind kind) {
  std::string word(analysis::MemoryName(kind));
  if (!word.empty() && word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

const char* DirectionWord(v1::CopyDirection direction) {
  switch (direction) {
    case v1::COPY_DIRECTION_H2D:
      return "HtoD";
    case v1::COPY_DIRECTION_D2H:
      return "DtoH";
    case v1::COPY_DIRECTION_D2D:
      return "DtoD";
    case v1::COPY_DIRECTION_H2H:
      return "HtoH";
    case v1::COPY_DIRECTION_P2P:
      return "PtoP";
    default:
      return "Unknown";
  }
}

const char* WaitName(v1::SyncKind what) {
  switch (what) {
    case v1::SYNC_KIND_STREAM:
      return "cudaStreamSynchronize";
    case v1::SYNC_KIND_DEVICE:
      return "cudaDeviceSynchronize";
    case v1::SYNC_KIND_EVENT:
      return "cudaEventSynchronize";
    case v1::SYNC_KIND_STREAM_WAIT_EVENT:
      return "cudaStreamWaitEvent";
    default:
      return "synchronize";
  }
}

}  // namespace

ProcessTimeline::ProcessTimeline(const Process& process, const GroupRanks& groups, ProcessClock clock,
                                 Window window, EventSink& sink)
    : process_(process),
      groups_(groups),
      clock_(std::move(clock)),
      window_(window),
      sink_(sink),
      definitions_(process),
      levels_(window, sink),
      occupancy_(sink) {}

absl::Status ProcessTimeline::Add(const v1::Batch& batch) {
  definitions_.Learn(batch);
  if (batch.restated()) return absl::OkStatus();
  clock_.BeginBatch(batch, device_until_ns_);
  if (absl::Status s = AddHostRecords(batch); !s.ok()) return s;
  if (absl::Status s = AddMemoryRecords(batch); !s.ok()) return s;
  if (absl::Status s = AddDeviceRecords(batch); !s.ok()) return s;
  held_.Drain(false,
              [this](const Record& record) { std::visit([this](const auto& r) { Show(r); }, record); });
  return absl::OkStatus();
}

void ProcessTimeline::Finish(const std::vector<model::StepRecord>& steps) {
  held_.Drain(true, [this](const Record& record) { std::visit([this](const auto& r) { Show(r); }, record); });
  launches_.Clear([this](const LaunchTable::Launch& launch) {
    if (!launch.matched) ShowLaunch(launch, launch.graph != 0 ? kLaunchGraph : kLaunchKernel);
  });
  for (const model::StepRecord& step : steps) ShowStep(step);
  levels_.Finish();
  occupancy_.Finish();
}

template <typename T>
void ProcessTimeline::Hold(uint64_t start_ns, uint64_t end_ns, uint64_t order, const T& record) {
  if (end_ns < start_ns) {
    ++left_out_;
  } else {
    held_.Add(start_ns, end_ns, order, record);
  }
}

template <typename Record, typename Visitor>
absl::Status ProcessTimeline::Read(const v1::Batch& batch, const Visitor& visit) {
  return model::ForEachRow<Record>(batch, [&](Record r) {
    clock_.MoveToLine(0, r);
    clock_.AlignTimes(r);
    visit(r);
  });
}

template <typename T>
void ProcessTimeline::HoldWork(uint32_t stream, T record) {
  clock_.MoveToLine(stream, record);
  device_until_ns_ = std::max(device_until_ns_, record.end_ns);
  clock_.AlignTimes(record);
  Hold(record.start_ns, record.end_ns, ++order_, record);
}

absl::Status ProcessTimeline::AddHostRecords(const v1::Batch& batch) {
  absl::Status status = Read<model::LaunchRecord>(batch, [this](const model::LaunchRecord& r) {
    launches_.Add({.time_ns = r.time_ns,
                   .correlation = r.correlation,
                   .thread = r.thread,
                   .graph = r.graph,
                   .matched = false},
                  [this](const LaunchTable::Launch& launch) {
                    if (!launch.matched) ShowLaunch(launch, launch.graph != 0 ? kLaunchGraph : kLaunchKernel);
                  });
  });
  if (!status.ok()) return status;
  status = Read<model::PlanRecord>(batch, [this](const model::PlanRecord& r) { calls_.Add(r); });
  if (!status.ok()) return status;
  status = Read<model::RangeRecord>(
      batch, [this](const model::RangeRecord& r) { Hold(r.start_ns, r.end_ns, r.id, r); });
  if (!status.ok()) return status;
  status = Read<model::CollectiveRecord>(batch, [this](const model::CollectiveRecord& r) {
    calls_.Add(r);
    Hold(r.issue_ns, r.return_ns, ++order_, r);
  });
  if (!status.ok()) return status;
  return Read<model::SyncRecord>(
      batch, [this](const model::SyncRecord& r) { Hold(r.start_ns, r.end_ns, ++order_, r); });
}

absl::Status ProcessTimeline::AddMemoryRecords(const v1::Batch& batch) {
  const auto hold = [this](const auto& r) { Hold(r.time_ns, r.time_ns, ++order_, r); };
  absl::Status status = Read<model::AllocationRecord>(batch, hold);
  if (!status.ok()) return status;
  status = Read<model::SmallAllocationsRecord>(
      batch, [this](const model::SmallAllocationsRecord& r) { Hold(r.highest_ns, r.end_ns, ++order_, r); });
  if (!status.ok()) return status;
  status = Read<model::AllocatorLevelRecord>(batch, hold);
  if (!status.ok()) return status;
  return Read<model::PoolLevelRecord>(batch, hold);
}

absl::Status ProcessTimeline::AddDeviceRecords(const v1::Batch& batch) {
  absl::Status status = model::ForEachKernel(batch, [this](const model::KernelRecord& r) {
    const Site* site = definitions_.FindSite(r.site);
    if (site == nullptr) {
      ++left_out_;
    } else {
      HoldWork(site->geometry.stream(), r);
    }
  });
  if (!status.ok()) return status;
  const auto hold = [this](const auto& r) { HoldWork(r.stream, r); };
  status = model::ForEachCopy(batch, hold);
  if (!status.ok()) return status;
  status = model::ForEachMemset(batch, hold);
  if (!status.ok()) return status;
  return model::ForEachGraphRun(batch, hold);
}

bool ProcessTimeline::Wants(uint64_t start_ns, uint64_t end_ns) {
  args_.clear();
  begins_.clear();
  ends_.clear();
  text_.clear();
  return !sink_.full() && window_.Overlaps(start_ns, end_ns);
}

void ProcessTimeline::Put(std::string_view key, Value value, bool json) {
  args_.push_back({key, value, json});
}

std::string_view ProcessTimeline::Keep(std::string text) { return text_.emplace_back(std::move(text)); }

void ProcessTimeline::Emit(Event event, TrackKey track, const std::string& track_name) {
  event.track = track;
  if (!IsMoment(event.category)) {
    const Lanes::Form form = track.kind == TrackKind::kThread || track.kind == TrackKind::kRanges
                                 ? Lanes::Form::kNested
                                 : Lanes::Form::kFlat;
    const auto lane = lanes_.try_emplace(track, form).first->second.Place(event.start_ns, event.end_ns);
    if (!lane.has_value()) {
      ++left_out_;
      return;
    }
    event.track.lane = *lane;
  }
  if (described_.insert(event.track).second) {
    sink_.DescribeTrack(event.track, event.track.lane == 0
                                         ? track_name
                                         : absl::StrCat(track_name, " (", event.track.lane + 1, ")"));
  }
  event.args = args_;
  event.begins = begins_;
  event.ends = ends_;
  sink_.OnEvent(event);
  ++events_;
  last_ns_ = std::max(last_ns_, event.start_ns);
}

void ProcessTimeline::ShowLaunch(const LaunchTable::Launch& launch, std::string_view what) {
  const std::vector<Arg> args = {{"correlation", launch.correlation, false}};
  const std::vector<Flow> begins = {{FlowKind::kLaunch, launch.correlation}};
  if (!launch.matched && (sink_.full() || !window_.Holds(launch.time_ns))) return;
  // The work that shows its launch has its own description under way.
  std::vector<Arg> work_args = std::exchange(args_, args);
  std::vector<Flow> work_begins = std::exchange(begins_, launch.matched ? begins : std::vector<Flow>{});
  std::vector<Flow> work_ends = std::exchange(ends_, {});
  const Thread& thread = definitions_.ThreadOf(launch.thread);
  Emit({.category = Category::kLaunch,
        .track = {},
        .start_ns = launch.time_ns,
        .end_ns = launch.time_ns,
        .name = what,
        .args = {},
        .begins = {},
        .ends = {}},
       {.kind = TrackKind::kThread, .id = thread.tid}, thread.name);
  args_ = std::move(work_args);
  begins_ = std::move(work_begins);
  ends_ = std::move(work_ends);
}

void ProcessTimeline::ShowWork(Category category, const Place& place, uint64_t start_ns, uint64_t end_ns,
                               std::string_view name, std::string_view launched_by) {
  Put("device", uint64_t{place.device});
  Put("context", uint64_t{place.context});
  Put("stream", uint64_t{place.stream});
  Put("correlation", place.correlation);
  if (place.graph_node != 0) Put("graph node id", place.graph_node);
  LaunchTable::Launch* launch = launches_.Find(place.correlation);
  if (launch != nullptr && launch->time_ns <= start_ns && !launch->matched) {
    launch->matched = true;
    const Counter counter{.kind = CounterKind::kLaunchDelay, .device = place.device, .part = 0};
    if (described_counters_.insert(counter).second)
      sink_.DescribeCounter(counter, absl::StrCat("GPU ", place.device, " launch delay"), Unit::kNanoseconds);
    sink_.OnCounter(counter, start_ns, static_cast<double>(start_ns - launch->time_ns));
    ShowLaunch(*launch, launch->graph != 0 ? kLaunchGraph : launched_by);
    ends_.push_back({FlowKind::kLaunch, place.correlation});
    Put("launch delay (ns)", start_ns - launch->time_ns);
  }
  Emit({.category = category,
        .track = {},
        .start_ns = start_ns,
        .end_ns = end_ns,
        .name = name,
        .args = {},
        .begins = {},
        .ends = {}},
       {.kind = TrackKind::kStream, .id = place.device, .stream = place.stream},
       definitions_.StreamName(place.device, place.context, place.stream));
}

void ProcessTimeline::DescribeGeometry(const Site& site) {
  Put("grid", std::string_view(site.grid), true);
  Put("block", std::string_view(site.block), true);
  Put("shared memory", uint64_t{site.geometry.static_shared_bytes()} + site.geometry.dynamic_shared_bytes());
  Put("registers per thread", uint64_t{site.geometry.registers_per_thread()});
  if (!site.occupancy.has_value()) return;
  Put("blocks per SM", site.occupancy->blocks_per_sm);
  Put("warps per SM", site.occupancy->warps_per_sm);
  Put("est. achieved occupancy %", 100 * site.occupancy->share);
}

void ProcessTimeline::Show(const model::KernelRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  const Site& site = *definitions_.FindSite(r.site);
  DescribeGeometry(site);
  CallTable::Plan* plan = calls_.PlanOfWork(r.correlation, r.graph_node);
  if (plan != nullptr) {
    DescribeCalls(*plan, !plan->ran && !plan->captured, true);
    plan->ran = true;
  } else if (!site.collective.empty()) {
    Put("Collective name", CollectiveName(site.collective));
  }
  if (site.occupancy.has_value())
    occupancy_.Add(site.geometry.device(), r.start_ns, r.end_ns, site.occupancy->share);
  ShowWork(site.collective.empty() && plan == nullptr ? Category::kKernel : Category::kCollectiveKernel,
           {.device = site.geometry.device(),
            .context = site.geometry.context(),
            .stream = site.geometry.stream(),
            .correlation = r.correlation,
            .graph_node = r.graph_node},
           r.start_ns, r.end_ns, site.name, kLaunchKernel);
}

void ProcessTimeline::Show(const model::CopyRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  Put("bytes", r.bytes);
  if (r.end_ns > r.start_ns)
    Put("memory bandwidth (GB/s)", static_cast<double>(r.bytes) / static_cast<double>(r.end_ns - r.start_ns));
  CallTable::Plan* plan = calls_.PlanOfWork(r.correlation, r.graph_node);
  if (plan != nullptr) {
    DescribeCalls(*plan, !plan->ran && !plan->captured, false);
    plan->ran = true;
  }
  const std::string name = absl::StrCat("Memcpy ", DirectionWord(r.direction), " (", MemoryWord(r.src_memory),
                                        " -> ", MemoryWord(r.dst_memory), ")");
  ShowWork(Category::kCopy,
           {.device = r.device,
            .context = r.context,
            .stream = r.stream,
            .correlation = r.correlation,
            .graph_node = r.graph_node},
           r.start_ns, r.end_ns, name, "cudaMemcpyAsync");
}

void ProcessTimeline::Show(const model::MemsetRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  Put("bytes", r.bytes);
  if (r.end_ns > r.start_ns)
    Put("memory bandwidth (GB/s)", static_cast<double>(r.bytes) / static_cast<double>(r.end_ns - r.start_ns));
  const std::string name = absl::StrCat("Memset (", MemoryWord(r.memory), ")");
  ShowWork(Category::kMemset,
           {.device = r.device,
            .context = r.context,
            .stream = r.stream,
            .correlation = r.correlation,
            .graph_node = r.graph_node},
           r.start_ns, r.end_ns, name, "cudaMemsetAsync");
}

void ProcessTimeline::Show(const model::GraphRunRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  ShowWork(Category::kGraph,
           {.device = r.device,
            .context = r.context,
            .stream = r.stream,
            .correlation = r.correlation,
            .graph_node = 0},
           r.start_ns, r.end_ns, absl::StrCat("CUDA graph ", r.graph), kLaunchGraph);
}

void ProcessTimeline::Show(const model::SyncRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  Put("wait_on_stream", uint64_t{r.stream});
  Put("correlation", r.correlation);
  Emit({.category = Category::kWait,
        .track = {},
        .start_ns = r.start_ns,
        .end_ns = r.end_ns,
        .name = WaitName(r.what),
        .args = {},
        .begins = {},
        .ends = {}},
       {.kind = TrackKind::kWaits}, "waits for the device");
}

void ProcessTimeline::Show(const model::RangeRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  if (r.domain != 0) Put("domain", definitions_.String(r.domain));
  if (r.unclosed) Put("unclosed", uint64_t{1});
  const bool process_wide = r.kind == v1::RANGE_KIND_START_END;
  const Thread& thread = definitions_.ThreadOf(r.thread);
  const Category category = r.kind == v1::RANGE_KIND_MARK ? Category::kMark : Category::kRange;
  Emit({.category = category,
        .track = {},
        .start_ns = r.start_ns,
        .end_ns = r.end_ns,
        .name = definitions_.String(r.name),
        .args = {},
        .begins = {},
        .ends = {}},
       process_wide ? TrackKey{.kind = TrackKind::kRanges}
                    : TrackKey{.kind = TrackKind::kThread, .id = thread.tid},
       process_wide ? "ranges" : thread.name);
}

void ProcessTimeline::ShowStep(const model::StepRecord& step) {
  const uint64_t start_ns = clock_.Align(step.start_ns);
  const uint64_t end_ns = clock_.Align(step.end_ns);
  if (end_ns < start_ns || !Wants(start_ns, end_ns)) return;
  Put("step", step.index);
  Put("compute (ns)", step.compute_ns);
  Put("exposed communication (ns)", step.exposed_comm_ns);
  Put("copies (ns)", step.copy_ns);
  Put("idle (ns)", step.idle_ns);
  if (step.warmup) Put("warm-up", uint64_t{1});
  if (step.incomplete) Put("records lost", uint64_t{step.lost});
  const std::string name = absl::StrCat("step ", step.index);
  Emit({.category = Category::kStep,
        .track = {},
        .start_ns = start_ns,
        .end_ns = end_ns,
        .name = name,
        .args = {},
        .begins = {},
        .ends = {}},
       {.kind = TrackKind::kSteps}, "steps");
}

}  // namespace gpuprobe::timeline
