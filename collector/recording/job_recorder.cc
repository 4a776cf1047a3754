#include "collector/recording/job_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/model/job/job_model.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "collector/recording/version.h"
#include "collector/report/report.h"

namespace gpuprobe::recording {
namespace {

// Older probes report only their launcher's id.
const std::string& JobOf(const v1::Identity& identity) {
  return identity.run().empty() ? identity.job() : identity.run();
}

// The parent of a process of our PID namespace; 0: not known.
uint32_t ParentOf(uint32_t pid) {
  const std::optional<std::string> text = observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/status"));
  const std::optional<observe::ProcStatus> status =
      text.has_value() ? observe::ParseStatus(*text) : std::nullopt;
  const bool ours = status.has_value() && status->pids.size() == 1 && status->pids.front() == pid;
  return ours ? status->parent : 0;
}

bool IsChildOf(const v1::Identity& child, const v1::Identity& parent) {
  return child.host() == parent.host() && parent.pid() != 0 && ParentOf(child.pid()) == parent.pid();
}

}  // namespace

Recorder* JobRecorder::OfFamily(const v1::Identity& identity) {
  for (const auto& [job, run] : runs_) {
    const auto& processes = run->job().processes();
    const auto any = [&](auto holds) { return std::any_of(processes.begin(), processes.end(), holds); };
    // A launcher that starts one job after the other shares the first one's run only.
    const bool family = analysis::HasRank(identity) ? !any([](const auto& p) {
      return analysis::HasRank(p->identity());
    }) && any([&](const auto& p) { return p->totals().launches == 0 && IsChildOf(identity, p->identity()); })
                                                    : any([&](const auto& p) {
                                                        return analysis::HasRank(p->identity()) &&
                                                               IsChildOf(p->identity(), identity);
                                                      });
    if (family) return run.get();
  }
  return nullptr;
}

absl::StatusOr<Recorder*> JobRecorder::Join(const v1::Hello& hello) {
  const std::string& job = JobOf(hello.identity());
  const auto found = runs_.find(job);
  if (found != runs_.end()) return found->second.get();
  if (const auto joined = joined_.find(job); joined != joined_.end()) return joined->second;
  if (Recorder* family = OfFamily(hello.identity()); family != nullptr) return joined_[job] = family;
  absl::StatusOr<Place> place = find_place_(hello);
  if (!place.ok()) return place.status();
  auto recorder =
      std::make_unique<Recorder>(std::move(place->directory), place->keep_bytes, place->unfinished);
  recorder->SetStepMarker(options_.marker);
  if (absl::Status s = recorder->Resume([](const std::string&) {}); !s.ok()) return s;
  recorder->WatchForHangs(options_.ranks, say_);
  if (options_.processes_tell && !place->unfinished) recorder->LetProcessTell();
  return (runs_[job] = std::move(recorder)).get();
}

absl::StatusOr<std::unique_ptr<ingest::FrameSink>> JobRecorder::Open(const v1::Hello& hello,
                                                                     std::string_view raw) {
  const absl::StatusOr<Recorder*> recorder = Join(hello);
  if (!recorder.ok()) return recorder.status();
  return (*recorder)->Open(hello, raw);
}

void JobRecorder::Conclude(Recorder& recorder) {
  if (!recorder.heard_anything()) return recorder.RemoveIfEmpty();
  const analysis::Report report = recorder.Finish({});
  if (const absl::Status& written = recorder.report_written(); !written.ok()) {
    say_(absl::StrCat("could not write the report of ", recorder.directory(), ": ", written.message()));
    return;
  }
  const auto ranks = report.conditions.ranks_heard;
  say_(absl::StrCat(ranks, ranks == 1 ? " rank, " : " ranks, ", recorder.directory()));
}

void JobRecorder::Tick() {
  const auto now = std::chrono::steady_clock::now();
  for (auto it = runs_.begin(); it != runs_.end();) {
    Recorder& recorder = *it->second;
    recorder.Tick();
    if (recorder.clients() > 0 || now - recorder.last_left() < kGoneWait) {
      ++it;
      continue;
    }
    Conclude(recorder);
    std::erase_if(joined_, [&](const auto& joined) { return joined.second == &recorder; });
    it = runs_.erase(it);
  }
}

void JobRecorder::Finish() {
  for (auto& [job, recorder] : runs_) Conclude(*recorder);
  joined_.clear();
  runs_.clear();
}

size_t JobRecorder::processes() const {
  size_t sum = 0;
  for (const auto& [job, recorder] : runs_) sum += recorder->processes();
  return sum;
}

uint64_t JobRecorder::keep_bytes() const {
  uint64_t sum = 0;
  for (const auto& [job, recorder] : runs_) sum += recorder->keep_bytes();
  return sum;
}

bool JobRecorder::Records(const std::string& directory) const {
  return std::any_of(runs_.begin(), runs_.end(),
                     [&](const auto& run) { return run.second->directory() == directory; });
}

}  // namespace gpuprobe::recording
