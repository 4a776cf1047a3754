#include "collector/page/timelines.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "collector/page/log_slicer.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_reader.h"

namespace gpuprobe::page {
namespace {

constexpr uint64_t kMargin = 50;  // a window begins and ends this part of its length earlier and later

// How far a process's clock is ahead of the reference's.
class ClockMap {
 public:
  explicit ClockMap(const analysis::Report& report) : start_ns_(report.conditions.start_ns) {
    for (const analysis::ClockOffset& c : report.clock.ranks) offsets_[{c.host, c.rank.value_or(-1)}] = &c;
  }
  int64_t AheadNs(const model::ProcessModel& process, uint64_t time_ns) const {
    const v1::Identity& identity = process.identity();
    const bool ranked = identity.rank_source() != v1::RANK_SOURCE_NONE;
    const auto found = offsets_.find({identity.host(), ranked ? identity.rank() : -1});
    if (found == offsets_.end()) return 0;
    constexpr double kPerMillion = 1e-6;
    const double drift_ns = found->second->drift_ppm.value_or(0) * kPerMillion *
                            (static_cast<double>(time_ns) - static_cast<double>(start_ns_));
    return found->second->offset_ns + static_cast<int64_t>(drift_ns);
  }

 private:
  uint64_t start_ns_;
  std::map<std::pair<std::string, int>, const analysis::ClockOffset*> offsets_;
};

uint64_t Moved(uint64_t time_ns, int64_t by_ns) { return time_ns + static_cast<uint64_t>(by_ns); }

// The step's bounds on every process shown, and over all of them.
Timeline BoundsOf(const model::JobModel& job, const StepGrid& grid, const ChosenStep& chosen,
                  const std::vector<size_t>& processes, const ClockMap& clocks) {
  Timeline timeline;
  timeline.chosen = chosen;
  StepWindow longest;
  for (const size_t process : processes) {
    const StepWindow window = LongestStep(job, process, grid, chosen.column);
    RankTimeline& rank = timeline.ranks.emplace_back();
    rank.process = process;
    if (window.end_ns == 0) continue;
    const int64_t ahead_ns = clocks.AheadNs(*job.processes()[process], window.start_ns);
    rank.start_ns = Moved(window.start_ns, -ahead_ns);
    rank.end_ns = Moved(window.end_ns, -ahead_ns);
    if (window.end_ns - window.start_ns <= longest.end_ns - longest.start_ns) continue;
    longest = window;
    timeline.step = window.step;
    timeline.start_ns = rank.start_ns;
    timeline.end_ns = rank.end_ns;
  }
  if (grid.steps_per_column > 1) return timeline;  // ranks may have had their longest step elsewhere
  for (const RankTimeline& rank : timeline.ranks) {
    if (rank.end_ns == 0) continue;
    timeline.start_ns = std::min(timeline.start_ns, rank.start_ns);
    timeline.end_ns = std::max(timeline.end_ns, rank.end_ns);
  }
  return timeline;
}

// Reads one segment into `slicer`, up to its end or to damage.
void ReadSegment(const store::MappedFile& file, const std::string& name, LogSlicer& slicer) {
  store::RunLogReader reader(name, file);
  v1::Frame frame;
  std::string_view raw;
  while (!slicer.done() && reader.Next(frame, raw)) {
    if (frame.has_batch() && !slicer.Apply(frame.batch()).ok()) return;
  }
}

const model::ProcessModel* WriterOf(const store::MappedFile& file, const std::string& name,
                                    const model::JobModel& job) {
  store::RunLogReader reader(name, file);
  v1::Frame frame;
  std::string_view raw;
  while (reader.Next(frame, raw)) {
    if (frame.has_hello()) return job.Find(frame.hello());
  }
  return nullptr;
}

class Slicing {
 public:
  Slicing(const model::JobModel& job, const ClockMap& clocks, Timelines& timelines)
      : job_(job), clocks_(clocks), timelines_(timelines) {}

  void Read(const store::Segment& segment) {
    const absl::StatusOr<std::unique_ptr<store::MappedFile>> file = store::MappedFile::Open(segment.path);
    if (!file.ok()) return;
    const model::ProcessModel* process = WriterOf(**file, segment.name, job_);
    if (process != process_) Finish();
    if (process == nullptr || !Shows(*process)) return;
    if (process_ == nullptr) Begin(*process);
    ReadSegment(**file, segment.name, *slicer_);
  }
  void Finish() {
    if (process_ == nullptr) return;
    std::vector<RankSlices> slices = slicer_->Take();
    for (size_t i = 0; i < slices.size(); ++i) {
      const int64_t ahead_ns = clocks_.AheadNs(*process_, timelines_.steps[i].start_ns);
      for (Slice& slice : slices[i].slices) {
        slice.start_ns = Moved(slice.start_ns, -ahead_ns);
        slice.end_ns = Moved(slice.end_ns, -ahead_ns);
      }
      RankOf(timelines_.steps[i], *process_)->slices = std::move(slices[i]);
    }
    process_ = nullptr;
    slicer_.reset();
  }

 private:
  RankTimeline* RankOf(Timeline& timeline, const model::ProcessModel& process) const {
    for (RankTimeline& rank : timeline.ranks) {
      if (job_.processes()[rank.process].get() == &process) return &rank;
    }
    return nullptr;
  }
  bool Shows(const model::ProcessModel& process) const {
    return RankOf(timelines_.steps.front(), process) != nullptr;
  }
  void Begin(const model::ProcessModel& process) {
    process_ = &process;
    std::vector<LogSlicer::Window> windows;
    for (const Timeline& timeline : timelines_.steps) {
      const uint64_t margin_ns = (timeline.end_ns - timeline.start_ns) / kMargin;
      const int64_t ahead_ns = clocks_.AheadNs(process, timeline.start_ns);
      windows.push_back({.start_ns = Moved(timeline.start_ns - margin_ns, ahead_ns),
                         .end_ns = Moved(timeline.end_ns + margin_ns, ahead_ns)});
    }
    slicer_.emplace(std::move(windows), timelines_.names);
  }

  const model::JobModel& job_;
  const ClockMap& clocks_;
  Timelines& timelines_;
  const model::ProcessModel* process_ = nullptr;
  std::optional<LogSlicer> slicer_;
};

}  // namespace

Timelines TimelinesOf(const model::JobModel& job, const analysis::Report& report, const StepGrid& grid,
                      const store::RunFiles& files) {
  Timelines timelines;
  const ClockMap clocks(report);
  const std::vector<size_t> processes = ChooseProcesses(job, report, grid);
  for (const ChosenStep& chosen : ChooseSteps(job, report, grid)) {
    Timeline timeline = BoundsOf(job, grid, chosen, processes, clocks);
    if (timeline.end_ns > timeline.start_ns) timelines.steps.push_back(std::move(timeline));
  }
  if (timelines.steps.empty()) return timelines;
  Slicing slicing(job, clocks, timelines);
  for (const store::Segment& segment : files.segments) slicing.Read(segment);
  slicing.Finish();
  return timelines;
}

}  // namespace gpuprobe::page
