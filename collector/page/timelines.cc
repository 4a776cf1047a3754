#include "collector/page/timelines.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "collector/analysis/trust/clock_alignment.h"
#include "collector/page/log_slicer.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_reader.h"

namespace gpuprobe::page {
namespace {

constexpr uint64_t kMargin = 50;  // a window begins and ends this part of its length earlier and later

using Clocks = std::map<const model::ProcessModel*, analysis::AlignedClock>;

// The step's bounds on every member shown, and over all of them.
Timeline BoundsOf(const model::JobModel& job, const StepGrid& grid, const ChosenStep& chosen,
                  const std::vector<size_t>& members, const Clocks& clocks) {
  Timeline timeline;
  timeline.chosen = chosen;
  StepWindow longest;
  for (const size_t member : members) {
    const StepWindow window = LongestStep(job, member, grid, chosen.column);
    RankTimeline& rank = timeline.ranks.emplace_back();
    rank.member = member;
    if (window.end_ns == 0) continue;
    const analysis::AlignedClock& clock = clocks.at(job.members()[member].process);
    rank.start_ns = clock.Align(window.start_ns);
    rank.end_ns = clock.Align(window.end_ns);
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
  Slicing(const model::JobModel& job, const Clocks& clocks, Timelines& timelines)
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
    for (size_t i = 0; i < slices.size(); ++i)
      RankOf(timelines_.steps[i], *process_)->slices = std::move(slices[i]);
    process_ = nullptr;
    slicer_.reset();
  }

 private:
  RankTimeline* RankOf(Timeline& timeline, const model::ProcessModel& process) const {
    // A process's slices, on whatever device, are its first member's.
    for (RankTimeline& rank : timeline.ranks) {
      const model::Member& member = job_.members()[rank.member];
      if (member.process == &process && member.place == 0) return &rank;
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
      windows.push_back({.start_ns = timeline.start_ns - margin_ns, .end_ns = timeline.end_ns + margin_ns});
    }
    slicer_.emplace(std::move(windows), clocks_.at(&process), timelines_.names);
  }

  const model::JobModel& job_;
  const Clocks& clocks_;
  Timelines& timelines_;
  const model::ProcessModel* process_ = nullptr;
  std::optional<LogSlicer> slicer_;
};

}  // namespace

Timelines TimelinesOf(const model::JobModel& job, const analysis::Report& report, const StepGrid& grid,
                      const store::RunFiles& files, std::span<const uint64_t> wanted) {
  Timelines timelines;
  Clocks clocks;
  for (const analysis::AlignedClock& clock : analysis::AlignedClocksOf(job))
    clocks.emplace(job.processes()[clocks.size()].get(), clock);
  const std::vector<size_t> members = ChooseMembers(job, report, grid);
  for (const ChosenStep& chosen : ChooseSteps(job, report, grid, wanted)) {
    Timeline timeline = BoundsOf(job, grid, chosen, members, clocks);
    if (timeline.end_ns > timeline.start_ns) timelines.steps.push_back(std::move(timeline));
  }
  if (timelines.steps.empty()) return timelines;
  Slicing slicing(job, clocks, timelines);
  for (const store::Segment& segment : files.segments) slicing.Read(segment);
  slicing.Finish();
  return timelines;
}

}  // namespace gpuprobe::page
