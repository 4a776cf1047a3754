#include "collector/cli/job_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/report.h"
#include "collector/cli/command.h"

namespace gpuprobe::cli {
namespace {

// Older probes say their launcher's id only.
const std::string& JobOf(const v1::Identity& identity) {
  return identity.run().empty() ? identity.job() : identity.run();
}

}  // namespace

absl::StatusOr<Recorder*> JobRecorder::Join(const v1::Hello& hello) {
  const std::string& job = JobOf(hello.identity());
  const auto found = runs_.find(job);
  if (found != runs_.end()) return found->second.get();
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
    it = runs_.erase(it);
  }
}

void JobRecorder::Finish() {
  for (auto& [job, recorder] : runs_) Conclude(*recorder);
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

}  // namespace gpuprobe::cli
