// The job of several hosts that record below one directory, as far as they have written: watched for hangs
// and reported as one.
//
// Hosts do not talk to each other: whoever can read the directory can judge the whole job. What it says is as
// old as the newest chunk of each log, a second and what the file system adds. Used from one thread.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/live_status.h"
#include "collector/http/document_builder.h"
#include "collector/model/job/job_model.h"
#include "collector/recording/detail_watch.h"
#include "collector/recording/hang_watch.h"
#include "collector/recording/host_clocks.h"
#include "collector/recording/options.h"
#include "collector/render/text_layout.h"
#include "collector/store/growing_run.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {

class WholeJob {
 public:
  // `say` receives hangs, deaths, and hosts that fall silent, once each.
  WholeJob(std::string directory, ChosenMarker marker, const HangOptions& options, HangWatch::Say say,
           const render::Layout& layout = render::Layout());

  // Reads what was written since the last look. An error as of store::GrowingRun; what could be read counts.
  // `after_batch` and `is_last`: as of store::GrowingRun.
  absl::Status Look(
      store::GrowingRun::AfterBatch after_batch = [](const model::ProcessModel&) {}, bool is_last = false);
  // What has been written is not all read: see store::GrowingRun.
  bool is_held_back() const { return run_.is_held_back(); }
  // As of the last look.
  const analysis::LiveStatus& status() const { return status_; }
  const std::vector<std::string>& hosts() const { return run_.hosts(); }
  // What was said about hangs since the last call, for a log that `report` reads.
  std::vector<v1::HangVerdict> TakeVerdicts() { return std::exchange(verdicts_, {}); }
  // After Look, at level calls: the ranks that are to record in full. `may_raise`: all are there, and none is
  // captured.
  std::optional<DetailWatch::Decision> LookForDetail(bool may_raise);
  // What came of it.
  void NoteRaise(const v1::DetailRaise& raise);
  // Folders of hosts that have not ended and have written nothing for half a minute.
  const std::set<std::string>& silent_hosts() const { return silent_; }
  // Folders of hosts whose collector still records.
  std::vector<std::string> HostsThatRecord() const;

  // Grows with what was read and said.
  uint64_t changes() const { return status_.records + said_; }
  // What the documents of the job so far are made from.
  http::DocumentBuilder::Order OrderDocuments(const analysis::ReportInput& input) const;
  const model::JobModel& model() const { return *job_; }
  // The logs that there are; none where they cannot be listed.
  store::RunFiles Files() const;

  // Settles what was read, writes report.html, report.json and their like into the directory, and returns the
  // report. Nothing may be called after it.
  absl::StatusOr<analysis::Report> Finish(const analysis::ReportInput& input);
  // Finish has read the job again from the start, with what was learned of its steps.
  bool was_read_again() const { return read_again_; }

 private:
  void SaySilentHosts();
  void SayUnreadHosts();

  std::string directory_;
  ChosenMarker marker_;
  store::GrowingRun run_;
  std::unique_ptr<model::JobModel> job_ = std::make_unique<model::JobModel>();
  HangWatch::Say say_;
  HangWatch hang_watch_;
  DetailWatch detail_watch_;
  HostClocks clocks_;
  analysis::LiveWatch live_watch_;
  analysis::LiveStatus status_;
  std::set<std::string> silent_;  // hosts of which that was said
  std::set<std::string> unread_;  // likewise: JobModel::unread_hosts
  std::vector<v1::HangVerdict> verdicts_;
  uint64_t said_ = 0;
  bool read_again_ = false;
};

}  // namespace gpuprobe::recording
