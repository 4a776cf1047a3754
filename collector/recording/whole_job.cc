#include "collector/recording/whole_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/recording/live_display.h"
#include "collector/recording/report_files.h"
#include "collector/recording/version.h"
#include "collector/store/directory.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {

WholeJob::WholeJob(std::string directory, ChosenMarker marker, const HangOptions& options, HangWatch::Say say,
                   const render::Layout& layout)
    : directory_(std::move(directory)),
      marker_(std::move(marker)),
      run_(directory_),
      hang_watch_(
          options.after_ns(), std::move(say), [](const v1::HangVerdict&) {}, layout) {}

absl::Status WholeJob::Look() {
  marker_.TakeFrom(directory_);
  job_->SetStepMarker(marker_.marker);
  const absl::Status read = run_.Look(*job_);
  if (job_->processes().empty()) return read;
  hang_watch_.Tick(*job_, NowNs(), MonotonicNs());
  status_ = live_watch_.Look(*job_, NowNs());
  status_.hangs = hang_watch_.Statements();
  return read;
}

std::vector<std::string> WholeJob::HostsThatRecord() const {
  std::vector<std::string> hosts;
  for (const std::string& host : run_.hosts()) {
    if (IsLive(absl::StrCat(directory_, "/", host))) hosts.push_back(host);
  }
  return hosts;
}

absl::StatusOr<analysis::Report> WholeJob::Finish(analysis::ReportInput input) {
  job_->Finish();
  if (job_->LearnedOfSteps()) {
    auto again = std::make_unique<model::JobModel>();
    again->SetStepMarker(job_->step_marker());
    // Where detail was dropped, the first guess at the steps stays.
    if (store::Replay(directory_, *again).ok()) job_ = std::move(again);
  }
  const absl::StatusOr<store::RunFiles> files = store::ListRun(directory_, store::Dropped::kAllow);
  if (!files.ok()) return files.status();
  const absl::StatusOr<store::Directory> directory = store::Directory::Make(directory_);
  if (!directory.ok()) return directory.status();
  analysis::Report report = analysis::BuildReport(*job_, input);
  if (absl::Status s = WriteReportFiles(*directory, *files, *job_, report); !s.ok()) return s;
  return report;
}

}  // namespace gpuprobe::recording
