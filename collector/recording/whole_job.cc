#include "collector/recording/whole_job.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/recording/live_display.h"
#include "collector/recording/report_files.h"
#include "collector/recording/version.h"
#include "collector/store/detail.h"
#include "collector/store/directory.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {

WholeJob::WholeJob(std::string directory, ChosenMarker marker, const HangOptions& options, HangWatch::Say say,
                   const render::Layout& layout)
    : directory_(std::move(directory)),
      marker_(std::move(marker)),
      run_(directory_),
      say_(std::move(say)),
      hang_watch_(
          options.after_ns(), say_,
          [this](const v1::HangVerdict& verdict) {
            job_->ApplyVerdict(verdict);
            verdicts_.push_back(verdict);
            ++said_;
          },
          layout) {}

absl::Status WholeJob::Look(store::GrowingRun::AfterBatch after_batch, bool is_last) {
  if (job_->processes().empty()) {
    marker_.TakeFrom(directory_);
    job_->SetStepMarker(marker_.marker);
  }
  absl::Status read = run_.Look(*job_, after_batch, is_last);
  if (job_->processes().empty()) return read;
  clocks_.Look(*job_, NowNs());
  for (const std::string& line : clocks_.TakeLines()) say_(line);
  // Ranks of which something is left unread only seem to stand still.
  if (clocks_.agree() && !run_.is_held_back()) hang_watch_.Tick(*job_, NowNs(), MonotonicNs());
  SaySilentHosts();
  SayUnreadHosts();
  status_ = live_watch_.Look(*job_, NowNs());
  status_.hangs = hang_watch_.Statements();
  return read;
}

std::optional<DetailWatch::Decision> WholeJob::LookForDetail(bool may_raise) {
  if (job_->trace().processes().empty()) return std::nullopt;
  return detail_watch_.Look(*job_, may_raise && status_.hangs.empty() && silent_.empty(), MonotonicNs(),
                            NowNs());
}

void WholeJob::NoteRaise(const v1::DetailRaise& raise) {
  job_->ApplyRaise(raise);
  ++said_;
}

// A collector writes its file every second, and removes it when it ends.
void WholeJob::SaySilentHosts() {
  for (const std::string& host : run_.hosts()) {
    const std::string folder = absl::StrCat(directory_, "/", host);
    std::error_code error;
    const bool silent =
        std::filesystem::exists(std::filesystem::path(folder) / store::kLiveFile, error) && !IsLive(folder);
    if (!silent) silent_.erase(host);
    if (silent && silent_.insert(host).second)
      say_(absl::StrCat(
          "SILENT  ", host,
          " has written nothing for half a minute: its gpuprobe was killed, the host is down, or "
          "the file system is away. Its ranks may run on, unrecorded.\n"));
  }
}

void WholeJob::SayUnreadHosts() {
  for (const std::string& host : job_->unread_hosts()) {
    if (unread_.insert(host).second)
      say_(
          absl::StrCat("UNREAD  ", host,
                       " runs another release of gpuprobe, which rolls its ranks up in another way: they are "
                       "compared, but their kernels, memory and hosts are missing here. Install the same "
                       "release on all hosts.\n"));
  }
}

std::vector<std::string> WholeJob::HostsThatRecord() const {
  std::vector<std::string> hosts;
  for (const std::string& host : run_.hosts()) {
    if (IsLive(absl::StrCat(directory_, "/", host))) hosts.push_back(host);
  }
  return hosts;
}

store::RunFiles WholeJob::Files() const {
  absl::StatusOr<store::RunFiles> files = store::ListRun(directory_, store::Dropped::kAllow);
  return files.ok() ? *std::move(files) : store::RunFiles{};
}

http::DocumentBuilder::Order WholeJob::OrderDocuments(const analysis::ReportInput& input) const {
  return {.state = job_->SaveState(),
          .saving = {},
          .marker = job_->step_marker(),
          .input = input,
          .files = Files(),
          .changes = changes()};
}

absl::StatusOr<analysis::Report> WholeJob::Finish(const analysis::ReportInput& input) {
  store::LoadDetail(Files(), *job_);
  job_->Finish();
  if (job_->LearnedOfSteps()) {
    auto again = std::make_unique<model::JobModel>();
    again->SetStepMarker(job_->step_marker());
    // Where detail was dropped, the first guess at the steps stays.
    if (store::Replay(directory_, *again).ok()) {
      // The last ones are in no log.
      for (const v1::HangVerdict& verdict : job_->verdicts().all()) again->ApplyVerdict(verdict);
      for (const v1::DetailRaise& raise : job_->trace().raises()) again->ApplyRaise(raise);
      job_ = std::move(again);
      read_again_ = true;
    }
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
