#include "collector/timeline/process_timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/records/system_calls.h"
#include "collector/text/characters.h"
#include "collector/timeline/collective_words.h"
#include "collector/timeline/json_text.h"

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

std::string Triple(uint32_t x, uint32_t y, uint32_t z) { return absl::StrCat("[", x, ", ", y, ", ", z, "]"); }

}  // namespace

ProcessTimeline::ProcessTimeline(const Process& process, const GroupRanks& groups,
                                 analysis::AlignedClock clock, Window window, EventSink& sink)
    : process_(process),
      groups_(groups),
      reader_(clock.process(), model::Definitions(text::ValidUtf8)),
      clock_(clock),
      window_(window),
      sink_(sink),
      levels_(window, sink),
      occupancy_(sink) {}

absl::Status ProcessTimeline::Add(const v1::Batch& batch) {
  reader_.Begin(batch);
  if (batch.restated()) return absl::OkStatus();
  absl::Status status =
      reader_
          .Read<model::LaunchRecord, model::RangeRecord, model::CollectiveRecord, model::PlanRecord,
                model::SyncRecord, model::DriverCallRecord, model::HostSampleRecord, model::AllocationRecord,
                model::SmallAllocationsRecord, model::AllocatorLevelRecord, model::PoolLevelRecord,
                model::KernelRecord, model::CopyRecord, model::MemsetRecord, model::GraphRunRecord>(
              batch, [this](auto& r) {
                clock_.AlignTimes(r);
                On(r);
              });
  if (!status.ok()) return status;
  held_.Drain(false,
              [this](const Record& record) { std::visit([this](const auto& r) { Show(r); }, record); });
  return absl::OkStatus();
}

void ProcessTimeline::Finish(const std::vector<model::StepRecord>& steps) {
  held_.Drain(true, [this](const Record& record) { std::visit([this](const auto& r) { Show(r); }, record); });
  stretches_.Finish([this](const model::HostStretch& stretch) { Show(stretch); });
  launches_.Clear([this](const model::LaunchTable::Launch& launch) { GiveUp(launch); });
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

void ProcessTimeline::On(const model::LaunchRecord& r) {
  launches_.Add({.time_ns = r.time_ns,
                 .correlation = r.correlation,
                 .thread = r.thread,
                 .graph = r.graph,
                 .owner = r.owner,
                 .matched = false},
                [this](const model::LaunchTable::Launch& launch) { GiveUp(launch); });
}

void ProcessTimeline::On(const model::CollectiveRecord& r) {
  calls_.Add(r);
  Hold(r.issue_ns, r.return_ns, ++order_, r);
}

void ProcessTimeline::On(const model::KernelRecord& r) {
  if (definitions_.FindSite(r.site) == nullptr) {
    ++left_out_;
  } else {
    Hold(r.start_ns, r.end_ns, ++order_, r);
  }
}

void ProcessTimeline::GiveUp(const model::LaunchTable::Launch& launch) {
  if (!launch.matched) ShowLaunch(launch, launch.graph != 0 ? kLaunchGraph : kLaunchKernel);
}

std::string ProcessTimeline::StreamName(const Place& place) const {
  std::string name = absl::StrCat("GPU ", place.device, " stream ", place.stream);
  const uint32_t given = definitions_.NameOfStream(place.context, place.stream);
  if (given != 0) name.append(" ").append(definitions_.String(given));
  return name;
}

const model::Thread& ProcessTimeline::ThreadOf(uint32_t id) const {
  static const model::Thread kUnknown;
  const model::Thread* thread = definitions_.FindThread(id);
  return thread == nullptr ? kUnknown : *thread;
}

const ProcessTimeline::SiteWords& ProcessTimeline::WordsOf(const model::Site& site) {
  const v1::KernelSite& in = site.geometry;
  const auto [it, added] = sites_.try_emplace(in.id());
  SiteWords& words = it->second;
  if (!added) return words;
  words = {.name = analysis::Demangle(definitions_.String(in.name())),
           .grid = Triple(in.grid_x(), in.grid_y(), in.grid_z()),
           .block = Triple(in.block_x(), in.block_y(), in.block_z()),
           .occupancy = {}};
  for (const Process::Device& device : process_.devices) {
    if (device.ordinal == in.device()) words.occupancy = OccupancyOf(in, device);
  }
  return words;
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

void ProcessTimeline::Emit(Category category, uint64_t start_ns, uint64_t end_ns, std::string_view name,
                           TrackKey track, const std::string& track_name) {
  Event event{.category = category,
              .track = track,
              .start_ns = start_ns,
              .end_ns = end_ns,
              .name = name,
              .args = args_,
              .begins = begins_,
              .ends = ends_};
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
  sink_.OnEvent(event);
  ++events_;
  last_ns_ = std::max(last_ns_, event.start_ns);
}

void ProcessTimeline::ShowLaunch(const model::LaunchTable::Launch& launch, std::string_view what) {
  const std::vector<Arg> args = {{"correlation", launch.correlation, false}};
  const std::vector<Flow> begins = {{FlowKind::kLaunch, launch.correlation}};
  if (!launch.matched && (sink_.full() || !window_.Holds(launch.time_ns))) return;
  // The work that shows its launch has its own description under way.
  std::vector<Arg> work_args = std::exchange(args_, args);
  std::vector<Flow> work_begins = std::exchange(begins_, launch.matched ? begins : std::vector<Flow>{});
  std::vector<Flow> work_ends = std::exchange(ends_, {});
  const model::Thread& thread = ThreadOf(launch.thread);
  Emit(Category::kLaunch, launch.time_ns, launch.time_ns, what,
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
  model::LaunchTable::Launch* launch = launches_.Find(place.correlation);
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
  Emit(category, start_ns, end_ns, name,
       {.kind = TrackKind::kStream, .id = place.device, .stream = place.stream}, StreamName(place));
}

void ProcessTimeline::DescribeGeometry(const model::Site& site, const SiteWords& words) {
  Put("grid", std::string_view(words.grid), true);
  Put("block", std::string_view(words.block), true);
  Put("shared memory", uint64_t{site.geometry.static_shared_bytes()} + site.geometry.dynamic_shared_bytes());
  Put("registers per thread", uint64_t{site.geometry.registers_per_thread()});
  if (!words.occupancy.has_value()) return;
  Put("blocks per SM", words.occupancy->blocks_per_sm);
  Put("warps per SM", words.occupancy->warps_per_sm);
  Put("est. achieved occupancy %", 100 * words.occupancy->share);
}

void ProcessTimeline::Show(const model::KernelRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  const model::Site& site = *definitions_.FindSite(r.site);
  const SiteWords& words = WordsOf(site);
  DescribeGeometry(site, words);
  const model::LaunchTable::Launch* launch = launches_.Find(r.correlation);
  const auto [nature, plan] =
      calls_.Resolve(r, site.nature, definitions_.names_are_uncertain(),
                     launch == nullptr ? uint32_t{v1::KERNEL_OWNER_NOT_SAID} : launch->owner);
  const bool nccl = nature == model::KernelNature::kNccl;
  if (plan != nullptr) {
    DescribeCalls(*plan, !plan->ran && !plan->captured, true);
    plan->ran = true;
  } else if (nccl && !site.operation.empty()) {
    Put("Collective name", CollectiveName(site.operation));
  }
  if (words.occupancy.has_value())
    occupancy_.Add(site.geometry.device(), r.start_ns, r.end_ns, words.occupancy->share);
  ShowWork(nccl ? Category::kCollectiveKernel : Category::kKernel,
           {.device = site.geometry.device(),
            .context = site.geometry.context(),
            .stream = site.geometry.stream(),
            .correlation = r.correlation,
            .graph_node = r.graph_node},
           r.start_ns, r.end_ns, words.name, kLaunchKernel);
}

void ProcessTimeline::Show(const model::CopyRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  Put("bytes", r.bytes);
  if (r.end_ns > r.start_ns)
    Put("memory bandwidth (GB/s)", static_cast<double>(r.bytes) / static_cast<double>(r.end_ns - r.start_ns));
  model::CallTable::Plan* plan = calls_.PlanOfWork(r.correlation, r.graph_node);
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
  Emit(Category::kWait, r.start_ns, r.end_ns, WaitName(r.what), {.kind = TrackKind::kWaits},
       "waits for the device");
}

void ProcessTimeline::Show(const model::DriverCallRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  if (r.result != 0) Put("result", int64_t{r.result});
  const model::Thread& thread = ThreadOf(r.thread);
  Emit(Category::kDriverCall, r.start_ns, r.end_ns, definitions_.String(r.function),
       {.kind = TrackKind::kThread, .id = thread.tid}, thread.name);
}

void ProcessTimeline::Show(const model::HostStretch& stretch) {
  if (!Wants(stretch.start_ns, stretch.end_ns)) return;
  const model::HostSampleRecord& r = stretch.last;
  Put("samples", uint64_t{stretch.samples});
  const std::vector<std::string> stack = model::PythonStackOf(r, definitions_);
  if (!stack.empty()) {
    std::string list;
    for (const std::string& function : stack) {
      list += list.empty() ? "[" : ", ";
      AppendQuoted(list, function);
    }
    Put("stack", Keep(list + "]"), true);
  }
  if (r.call != 0) Put("call", definitions_.String(r.call));
  if (r.system_call >= 0) {
    const std::string_view name = model::SystemCallOf(r.system_call).name;
    Put("system call", name.empty() ? Keep(absl::StrCat(r.system_call)) : name);
  }
  if (r.file != 0) Put("file", definitions_.String(r.file));
  const std::string_view state = model::ThreadStateWord(r.state);
  if (!state.empty()) Put("state", state);
  Put("without a CPU (ns)", stretch.run_delay_ns);
  if (!r.in_gap) Put("while launching", uint64_t{1});
  const model::Thread& thread = ThreadOf(r.thread);
  Emit(Category::kHostSample, stretch.start_ns, stretch.end_ns, model::HostPlaceName(r, definitions_),
       {.kind = TrackKind::kHost, .id = thread.tid},
       absl::StrCat("samples of ", thread.name.empty() ? "thread" : thread.name, " ", thread.tid));
}

void ProcessTimeline::Show(const model::RangeRecord& r) {
  if (!Wants(r.start_ns, r.end_ns)) return;
  if (r.domain != 0) Put("domain", definitions_.String(r.domain));
  if (r.unclosed) Put("unclosed", uint64_t{1});
  const bool process_wide = r.kind == v1::RANGE_KIND_START_END;
  const model::Thread& thread = ThreadOf(r.thread);
  const Category category = r.kind == v1::RANGE_KIND_MARK ? Category::kMark : Category::kRange;
  Emit(category, r.start_ns, r.end_ns, definitions_.String(r.name),
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
  Emit(Category::kStep, start_ns, end_ns, name, {.kind = TrackKind::kSteps}, "steps");
}

}  // namespace gpuprobe::timeline
