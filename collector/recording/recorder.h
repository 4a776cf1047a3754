// Records clients' frames in a run directory: applies every frame to the model and writes it to the process's
// log.
//
// `collect` and `run` both record with it. Used from the server's thread only. Must outlive the server whose
// sinks it makes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/live_status.h"
#include "collector/ingest/session.h"
#include "collector/model/job/job_model.h"
#include "collector/observe/device_watch.h"
#include "collector/observe/process_observer.h"
#include "collector/recording/detail_watch.h"
#include "collector/recording/hang_watch.h"
#include "collector/recording/health_check.h"
#include "collector/recording/job_captures.h"
#include "collector/recording/options.h"
#include "collector/recording/page_source.h"
#include "collector/store/directory.h"
#include "collector/store/roll_up_recording.h"
#include "collector/store/run_files.h"
#include "collector/store/run_recording.h"
#include "collector/store/run_resume.h"
#include "collector/store/run_settings.h"
#include "collector/store/shared_ring.h"

namespace gpuprobe::recording {

class Recorder : public PageSource {
 public:
  // Where to record: `directory` is made at once and must be free; empty: a default name is made when the
  // first process reports. `keep_bytes`: see RunRecording.
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(const std::string& directory, uint64_t keep_bytes);
  // The same, and `directory` may hold an unfinished run whose collector is gone: Resume goes on with it.
  static absl::StatusOr<std::unique_ptr<Recorder>> CreateOrResume(const std::string& directory,
                                                                  uint64_t keep_bytes);

  // In a directory that is open and locked; `unfinished`: it holds a run that Resume goes on with.
  Recorder(store::Directory directory, uint64_t keep_bytes, bool unfinished)
      : directory_(std::move(directory)), unfinished_(unfinished), keep_bytes_(keep_bytes) {}

  // Call before the first process reports.
  void SetStepMarker(const ChosenMarker& marker);
  // Call after SetStepMarker, before the first process reports: restores an unfinished run in the directory;
  // `say`, in lines, what was done. InvalidArgument if it was recorded with another step marker.
  absl::Status Resume(const std::function<void(const std::string& line)>& say);
  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Open(const v1::Hello& hello, std::string_view raw);
  // A capture of this run, at level idle. AlreadyExists: everything is recorded anyway; else why not.
  absl::StatusOr<std::unique_ptr<ingest::Answerer>> OpenCapture(const v1::CaptureRequest& request) {
    return captures_.Open(request, CapturedProcesses());
  }
  JobCaptures& captures() { return captures_; }
  // Where each process is, for a capture that this or another host's collector directs; what they have
  // recorded of one that is over is in the logs.
  std::vector<v1::CapturedProcess> CapturedProcesses() const;
  // Who sees all hosts of the job decides when ranks at level calls record in full; else this does, by its
  // own.
  void SetWatchedElsewhere(bool elsewhere) { is_watched_elsewhere_ = elsewhere; }
  void Raise(DetailWatch::Decision decision);
  // What came of one: into the model and the log of the first process, once.
  void NoteRaise(const v1::DetailRaise& raise);
  // To the process of that number in CapturedProcesses. The same order may come again.
  void Order(uint32_t number, const v1::Capture& order);
  // Where the directory gets a default name: records into this folder of it.
  void SetFolderInDefault(const std::string& folder) { folder_in_default_ = folder; }
  // Where the directory gets a default name: with this instead of the program's.
  void SetName(const std::string& name) { name_ = name; }
  // Makes the first process that reports print where the run is.
  void LetProcessTell(const std::string& run) { tells_ = run; }
  // `options`: how long a collective may wait before it counts as a hang, and what links carry. `say`
  // receives hangs while the job runs.
  void WatchForHangs(const HangOptions& options, HangWatch::Say say,
                     render::Layout layout = render::Layout());
  // The arithmetic of a step, for the report.
  void SetModelWork(const analysis::ModelWork& work) { work_ = work; }
  // HealthCheck::Look's verdict on the job so far.
  std::optional<std::string> Check(HealthCheck& check, bool at_end) { return check.Look(job_, at_end); }
  // Writes batches that have waited long enough, looks for hangs, and updates the status; call a few times a
  // second.
  void Tick();
  // What was said about a hang, also by who watches all hosts: into the model and the log of the first
  // process.
  void NoteVerdict(const v1::HangVerdict& verdict);
  // A child of ours has ended, with a status of waitpid().
  void NoteChildEnd(pid_t pid, int wait_status);
  // As of the last second.
  const analysis::LiveStatus& status() const { return status_; }
  const model::JobModel& job() const { return job_; }
  // Grows with every record received and every observation of a process.
  uint64_t changes() const override { return changes_; }
  uint64_t unrecorded_frames() const override {
    return recording_ == nullptr ? 0 : recording_->unrecorded_frames();
  }
  analysis::LiveStatus StatusNow() const override { return status_; }
  analysis::JobNumbers NumbersNow() const override;
  std::optional<http::DocumentBuilder::Order> OrderDocuments(
      const std::vector<std::string>& command_line) override;
  // The run's directory; none where it cannot be read.
  store::RunFiles Files() const;

  // Settles the model and writes report.json and report.html, as far as the disk takes them: see
  // report_written. After it no sink may be used. `command_line` is put into the conditions if not empty.
  analysis::Report Finish(const std::vector<std::string>& command_line);
  // OK if Finish wrote both files, else which one it could not write, and why.
  const absl::Status& report_written() const { return report_written_; }
  // Writes report.json and report.html of the run so far.
  absl::Status WriteReportSoFar();

  bool heard_anything() const { return !job_.processes().empty(); }
  size_t processes() const { return job_.processes().size(); }
  // Connections that are open, and since when there has been none.
  size_t clients() const { return clients_; }
  std::chrono::steady_clock::time_point last_left() const { return last_left_; }
  uint64_t keep_bytes() const { return keep_bytes_; }
  // Where it records; empty: not known before the first process reports.
  std::string directory() const { return directory_.has_value() ? directory_->path() : ""; }
  // Where the logs are that a hub needs: the directory, or roll-ups in it.
  std::string directory_for_hub() const;
  // Removes a directory that Create made and nothing was recorded in.
  void RemoveIfEmpty();

 private:
  class Sink;
  // nullptr: GPUPROBE_GPU_HEALTH=0.
  static std::unique_ptr<observe::DeviceWatch> MakeDeviceWatch();
  explicit Recorder(uint64_t keep_bytes) : keep_bytes_(keep_bytes) {}
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(const std::string& directory, uint64_t keep_bytes,
                                                          bool may_resume);
  analysis::ReportInput InputFor(const std::vector<std::string>& command_line) const;
  void CountStepsAgain();
  absl::Status WriteReport(const model::JobModel& job, const analysis::Report& report) const;
  void Note(const absl::Status& status);
  void RotateIfDue();
  void LookIfDue();
  // At level calls: has ranks that are late recorded in full.
  void RaiseIfDue();
  void NoteOwnRaise(bool job_is_over = false);
  // In the log of the job's first process.
  void NoteOfJob(const v1::Frame& frame);
  // Looks at processes from outside: each once a second, and at once when it has ended.
  void ObserveIfDue();
  void AwaitEnd(model::ProcessModel& process);
  // The flight recorder's ring of a process; a descriptor to pass to it, or -1.
  int ShareRing(model::ProcessModel& process, const std::string& log);
  // The process has ended in order.
  void DropRing(const model::ProcessModel& process);
  // It has ended otherwise, or we end before it.
  void KeepRing(const model::ProcessModel& process, flight::Ending ending, uint64_t now_ns);
  // Its connection is gone, and it is not known to have ended.
  bool MayGoOn(model::ProcessModel& process) const;
  // Applies and writes what the observer sees; with `last` also an end whose status is not known.
  void Observe(model::ProcessModel& process, observe::ProcessObserver& observer, bool last);
  void CountUntilBye(model::ProcessModel& process);
  void RecordObservation(model::ProcessModel& process, std::optional<v1::ProcessObservation> seen);
  // What the watch has seen of GPUs, for the processes that compute on them; and has it watch those of new
  // ones.
  void ObserveDevices();
  void Record(const model::ProcessModel& process, const v1::Frame& frame);
  // Into its log, and its roll-up's.
  void Append(const model::ProcessModel& process, store::RunRecording::Log& log, std::string_view raw);
  void RollUpIfDue();

  std::optional<store::Directory> directory_;
  std::string folder_in_default_;
  std::string name_;                          // of the run; empty: its program's
  bool unfinished_ = false;                   // the directory holds a run that Resume goes on with
  size_t clients_ = 0;                        // sinks that are open
  std::set<model::ProcessModel*> connected_;  // theirs
  std::map<const model::ProcessModel*, v1::Capture> orders_;    // that were not sent yet
  std::map<const model::ProcessModel*, uint64_t> ordered_;      // ids of the last ones, sent or not
  std::map<const model::ProcessModel*, uint64_t> answered_ns_;  // when they said last how a capture is going
  JobCaptures captures_{[this](uint32_t number, const v1::Capture& order) { Order(number, order); }};
  DetailWatch detail_watch_;
  bool is_watched_elsewhere_ = false;
  model::JobModel job_;
  analysis::ModelWork work_;
  store::RunSettings settings_;
  uint64_t keep_bytes_;
  std::unique_ptr<store::RunRecording> recording_;    // from the first process on
  std::unique_ptr<store::RollUpRecording> roll_ups_;  // nullptr: the job is not rolled up
  std::map<const model::ProcessModel*, store::RunRecording::Log*> logs_;
  std::map<model::ProcessModel*, std::unique_ptr<observe::ProcessObserver>> observers_;
  std::map<const model::ProcessModel*, std::unique_ptr<store::SharedRing>> rings_;
  std::unique_ptr<observe::DeviceWatch> device_watch_ = MakeDeviceWatch();
  uint64_t next_observation_ns_ = 0;
  int end_patience_ms_ = 200;  // left, for ends that are waited for
  HangOptions rank_options_;
  analysis::LiveWatch live_watch_;
  analysis::LiveStatus status_;
  uint64_t next_look_ns_ = 0;
  uint64_t changes_ = 0;
  std::unique_ptr<HangWatch> hang_watch_;  // null: hangs are not said live
  absl::Status report_written_;
  std::chrono::steady_clock::time_point last_left_ = std::chrono::steady_clock::now();
  std::string tells_;
  bool said_disk_trouble_ = false;
  bool said_rotation_trouble_ = false;
  bool said_ring_trouble_ = false;
  bool looked_for_rings_ = false;
};

}  // namespace gpuprobe::recording
