#include "collector/recording/job_recorder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/model/job/job_model.h"
#include "collector/recording/launched_job.h"
#include "collector/recording/version.h"
#include "collector/report/report.h"

namespace gpuprobe::recording {
namespace {

// Older probes report only their launcher's id.
const std::string& JobOf(const v1::Identity& identity) {
  return identity.run().empty() ? identity.job() : identity.run();
}

// Where no thread can be started, it is done when the result is taken.
constexpr auto kInThread = std::launch::async | std::launch::deferred;

template <typename T>
bool HasEnded(const std::future<T>& result) {
  return result.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
}

bool IsChildOf(const v1::Identity& child, const v1::Identity& parent) {
  return child.host() == parent.host() && parent.pid() != 0 && ParentOf(child.pid()) == parent.pid();
}

}  // namespace

JobRecorder::Run* JobRecorder::OfFamily(const v1::Identity& identity) {
  for (auto& [job, run] : runs_) {
    const auto& processes = run.recorder->job().processes();
    const auto any = [&](auto holds) { return std::any_of(processes.begin(), processes.end(), holds); };
    // A launcher that starts one job after the other shares the first one's run only.
    const bool family = analysis::HasRank(identity) ? !any([](const auto& p) {
      return analysis::HasRank(p->identity());
    }) && any([&](const auto& p) { return p->totals().launches == 0 && IsChildOf(identity, p->identity()); })
                                                    : any([&](const auto& p) {
                                                        return analysis::HasRank(p->identity()) &&
                                                               IsChildOf(p->identity(), identity);
                                                      });
    if (family) return &run;
  }
  return nullptr;
}

absl::StatusOr<JobRecorder::Run*> JobRecorder::Join(const v1::Hello& hello) {
  const std::string& job = JobOf(hello.identity());
  const auto found = runs_.find(job);
  if (found != runs_.end()) return &found->second;
  if (const auto joined = joined_.find(job); joined != joined_.end()) return joined->second;
  if (Run* family = OfFamily(hello.identity()); family != nullptr) return joined_[job] = family;
  absl::StatusOr<Place> place = find_place_(hello);
  if (!place.ok()) return place.status();
  auto recorder =
      std::make_unique<Recorder>(std::move(place->directory), place->keep_bytes, place->unfinished);
  recorder->SetStepMarker(options_.marker);
  if (absl::Status s = recorder->Resume([](const std::string&) {}); !s.ok()) return s;
  recorder->WatchForHangs(options_.ranks, say_);
  if (options_.processes_tell && !place->unfinished)
    recorder->LetProcessTell(place->of_all_hosts.empty() ? recorder->directory() : place->of_all_hosts);
  Run& run = runs_[job];
  run.recorder = std::move(recorder);
  run.of_all_hosts = std::move(place->of_all_hosts);
  return &run;
}

absl::StatusOr<std::unique_ptr<ingest::FrameSink>> JobRecorder::Open(const v1::Hello& hello,
                                                                     std::string_view raw) {
  const absl::StatusOr<Run*> run = Join(hello);
  if (!run.ok()) return run.status();
  JoinHosts(**run, hello);
  return (*run)->recorder->Open(hello, raw);
}

absl::StatusOr<std::unique_ptr<ingest::Answerer>> JobRecorder::OpenCapture(
    const v1::CaptureRequest& request) {
  for (const auto& [job, run] : runs_) {
    std::error_code error;
    if (std::filesystem::equivalent(run.recorder->directory(), request.run_directory(), error))
      return run.recorder->OpenCapture(request);
  }
  return absl::NotFoundError("its collector does not record this run any more");
}

// In a thread: names are looked up, and the hub is asked.
void JobRecorder::JoinHosts(Run& run, const v1::Hello& hello) {
  if (!options_.joins_hosts || run.knows_hosts) return;
  LaunchedJob job = LaunchedJobOf(hello.identity(), options_.hub);
  const bool shares_directory = !run.of_all_hosts.empty() && analysis::HasRank(hello.identity());
  if (!job.meeting.has_value() && !shares_directory) return;
  run.knows_hosts = true;
  if (job.meeting.has_value() && !job.meeting->alone)
    run.recorder->captures().SetElsewhere("the hosts of this job are being joined; try again in a moment");
  AllHosts::Options options{.out = run.of_all_hosts,
                            .meeting = std::move(job.meeting),
                            .token = std::move(job.token),
                            .marker = options_.marker,
                            .hangs = options_.ranks,
                            .input = {},
                            .layout = render::Layout(),
                            .keep_bytes = run.recorder->keep_bytes(),
                            .quiet = true,
                            .listens = options_.hub.empty()};
  options.input.collector_version = Version();
  options.input.hang_after_ns = options_.ranks.after_ns();
  options.input.link_peak = options_.ranks.link_peak;
  run.joining = std::async(kInThread, [options = std::move(options)]() mutable {
    return std::make_unique<AllHosts>(std::move(options));
  });
}

// The lines to say.
std::string JobRecorder::Conclude(Run& run, std::chrono::milliseconds patience) {
  Recorder& recorder = *run.recorder;
  if (!recorder.heard_anything()) {
    recorder.RemoveIfEmpty();
    return "";
  }
  const analysis::Report report = recorder.Finish({});
  absl::Status written = recorder.report_written();
  if (run.joining.valid()) run.hosts = run.joining.get();
  if (run.hosts != nullptr) {
    run.hosts->Tick(recorder);  // of a job that was over at once
    run.hosts->End(patience);
    if (WholeJob* const job = run.hosts->job(); job != nullptr)
      written.Update(job->Finish(run.hosts->input()).status());
  }
  if (!written.ok())
    return absl::StrCat("could not write the report of ", recorder.directory(), ": ", written.message());
  const auto ranks = report.conditions.ranks_heard;
  return absl::StrCat(ranks, ranks == 1 ? " rank, " : " ranks, ", recorder.directory(),
                      run.hosts != nullptr ? run.hosts->WhatArrived() : "");
}

void JobRecorder::Say(const std::string& line) const {
  if (!line.empty()) say_(line);
}

bool JobRecorder::GoesOn(Run& run) {
  const auto since_last = std::chrono::steady_clock::now() - run.recorder->last_left();
  if (run.recorder->clients() > 0 || since_last < kGoneWait) return true;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(since_last - kGoneWait);
  return run.hosts != nullptr && waited < AllHosts::kWait && run.hosts->AwaitsOthers(*run.recorder, waited);
}

void JobRecorder::Tick() {
  for (auto it = runs_.begin(); it != runs_.end();) {
    Run& run = it->second;
    run.recorder->Tick();
    if (run.joining.valid() && HasEnded(run.joining)) run.hosts = run.joining.get();
    if (run.hosts != nullptr) {
      run.hosts->Tick(*run.recorder);
      run.hosts->NoteVerdicts(*run.recorder);
    }
    if (GoesOn(run)) {
      ++it;
      continue;
    }
    std::erase_if(joined_, [&](const auto& joined) { return joined.second == &run; });
    if (run.knows_hosts) {
      // The others are waited for in a thread, while the ranks of other jobs here report.
      concluding_.push_back(
          std::async(kInThread, [run = std::move(run)]() mutable { return Conclude(run, AllHosts::kWait); }));
    } else {
      Say(Conclude(run, AllHosts::kWait));
    }
    it = runs_.erase(it);
  }
  std::erase_if(concluding_, [&](std::future<std::string>& line) {
    if (!HasEnded(line)) return false;
    Say(line.get());
    return true;
  });
}

void JobRecorder::Finish() {
  for (auto& [job, run] : runs_) Say(Conclude(run, std::chrono::milliseconds(0)));
  joined_.clear();
  runs_.clear();
  for (std::future<std::string>& line : concluding_) Say(line.get());
  concluding_.clear();
}

size_t JobRecorder::processes() const {
  size_t sum = 0;
  for (const auto& [job, run] : runs_) sum += run.recorder->processes();
  return sum;
}

uint64_t JobRecorder::keep_bytes() const {
  uint64_t sum = 0;
  for (const auto& [job, run] : runs_) sum += run.recorder->keep_bytes();
  return sum;
}

bool JobRecorder::Records(const std::string& directory) const {
  return std::any_of(runs_.begin(), runs_.end(),
                     [&](const auto& run) { return run.second.recorder->directory() == directory; });
}

}  // namespace gpuprobe::recording
