#include "collector/recording/recorder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/names.h"
#include "collector/framing/frame_decoder.h"
#include "collector/log/log.h"
#include "collector/recording/last_moments.h"
#include "collector/recording/launched_job.h"
#include "collector/recording/live_display.h"
#include "collector/recording/report_files.h"
#include "collector/recording/version.h"
#include "collector/render/live_json.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {
namespace {

constexpr uint64_t kRollUpsOfKept = 4;  // one part in so many of what is kept

bool EndsCapture(const v1::Batch& batch) {
  return batch.capture().phase() == v1::CAPTURE_PHASE_DONE ||
         batch.capture().phase() == v1::CAPTURE_PHASE_CUT;
}

}  // namespace

class Recorder::Sink : public ingest::FrameSink {
 public:
  Sink(Recorder& recorder, model::ProcessModel& process, store::RunRecording::Log& log)
      : recorder_(recorder), process_(process), log_(log) {
    ++recorder_.clients_;
    recorder_.connected_.insert(&process);
    NoteConnection(/*open=*/true);
  }

  absl::Status OnBatch(const v1::Batch& batch, std::string_view raw) override {
    if (process_.Knows(batch)) return absl::OkStatus();  // sent again after a lost connection
    // Frames that contradict the schema are not recorded either: a log must replay.
    if (absl::Status s = process_.Apply(batch); !s.ok()) return s;
    ++recorder_.changes_;
    recorder_.Note(log_.AppendBatch(batch, raw, MonotonicNs()));
    recorder_.RotateIfDue();
    if (batch.has_capture()) recorder_.answered_ns_[&process_] = batch.clock().monotonic_ns();
    // Who hears that a capture is over reads the logs.
    const bool is_captured = EndsCapture(batch);
    if (is_captured) recorder_.Note(log_.Flush());
    if (recorder_.roll_ups_ != nullptr && (is_captured || store::RollUpRecording::IsDue(process_))) {
      recorder_.Note(log_.Flush());
      recorder_.Note(recorder_.roll_ups_->RollUp(recorder_.job_, process_, MonotonicNs()));
    }
    return absl::OkStatus();
  }
  void OnConnected(int socket) override {
    std::unique_ptr<observe::ProcessObserver> observer =
        observe::ProcessObserver::OfPeer(socket, process_.identity().pid());
    if (observer == nullptr) return;
    observer->Begin(MonotonicNs());
    recorder_.observers_[&process_] = std::move(observer);
  }
  int TakeDescriptor() override { return recorder_.ShareRing(process_, log_.name()); }
  void OnBye(const v1::Bye& bye, std::string_view raw) override {
    recorder_.DropRing(process_);  // now: the run may be over before the connection is closed
    recorder_.CountUntilBye(process_);
    process_.ApplyBye(bye);
    ++recorder_.changes_;
    recorder_.Note(log_.Append(raw, MonotonicNs()));
    recorder_.Note(log_.Flush());
    if (recorder_.roll_ups_ != nullptr) {
      recorder_.Note(recorder_.roll_ups_->RollUp(recorder_.job_, process_, MonotonicNs()));
      recorder_.Note(recorder_.roll_ups_->Append(process_, raw, MonotonicNs()));
    }
    // The client waits, and we end with it: this is the last chance to write the report.
    if (bye.ends_collector() && recorder_.clients_ == 1) recorder_.Note(recorder_.WriteReportSoFar());
  }
  std::optional<uint64_t> OnRecord() override { return log_.on_record(); }
  std::string RunDirectory() override {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::absolute(recorder_.directory(), error);
    return error ? "" : path.lexically_normal().string();
  }
  void AppendOrders(std::string& reply) override {
    const auto order = recorder_.orders_.find(&process_);
    if (order == recorder_.orders_.end()) return;
    v1::Frame frame;
    *frame.mutable_control()->mutable_capture() = order->second;
    framing::AppendDelimited(frame.SerializeAsString(), reply);
    recorder_.orders_.erase(order);
  }
  bool AsksForUnfinished() override {
    return recorder_.hang_watch_ != nullptr && recorder_.hang_watch_->TakeRequest(process_);
  }
  void OnClosed(bool cut_off) override {
    if (cut_off) NoteConnection(/*open=*/false);
    ++recorder_.changes_;
    const uint64_t now_ns = NowNs();
    if (cut_off) recorder_.AwaitEnd(process_);
    if (!cut_off || !recorder_.MayGoOn(process_)) {
      recorder_.KeepRing(process_,
                         cut_off ? flight::Ending::kConnectionLost : flight::Ending::kCollectorEnded, now_ns);
    }
    recorder_.Note(log_.Flush());
    recorder_.connected_.erase(&process_);
    recorder_.orders_.erase(&process_);
    recorder_.ordered_.erase(&process_);
    --recorder_.clients_;
    recorder_.last_left_ = std::chrono::steady_clock::now();
  }
  std::string TellsUser() override { return std::exchange(recorder_.tells_, ""); }

 private:
  // Distinguishes a process that ended from one whose collector ended first.
  void NoteConnection(bool open) {
    v1::Frame frame;
    frame.mutable_connection()->set_open(open);
    process_.ApplyConnection(frame.connection());
    recorder_.Append(process_, log_, frame.SerializeAsString());
    recorder_.Note(log_.Flush());  // nothing else may come before the collector's end
  }

  Recorder& recorder_;
  model::ProcessModel& process_;
  store::RunRecording::Log& log_;
};

std::vector<v1::CapturedProcess> Recorder::CapturedProcesses() const {
  std::vector<v1::CapturedProcess> processes;
  for (const std::unique_ptr<model::ProcessModel>& process : job_.processes()) {
    const v1::Identity& identity = process->identity();
    v1::CapturedProcess& its = processes.emplace_back();
    its.set_number(static_cast<uint32_t>(processes.size()));
    its.set_rank(analysis::HasRank(identity) ? identity.rank() : -1);
    its.set_world_size(static_cast<uint32_t>(std::max(identity.world_size(), 0)));
    its.set_pid(identity.pid());
    its.set_idle(process->records_on_demand());
    its.set_connected(connected_.contains(process.get()));
    *its.mutable_state() = process->captures().state();
    if (const auto at = answered_ns_.find(process.get()); at != answered_ns_.end())
      its.set_state_ns(at->second);
    const auto& windows = process->captures().windows();
    if (windows.empty() || !windows.back().has_steps) continue;
    its.mutable_steps()->set_first(windows.back().first);
    its.mutable_steps()->set_last(windows.back().last);
  }
  return processes;
}

void Recorder::Order(uint32_t number, const v1::Capture& order) {
  if (number == 0 || number > job_.processes().size()) return;
  model::ProcessModel* const process = job_.processes()[number - 1].get();
  if (!connected_.contains(process) || ordered_[process] == order.id()) return;
  ordered_[process] = order.id();
  orders_[process] = order;
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Create(const std::string& directory, uint64_t keep_bytes,
                                                           bool may_resume) {
  std::unique_ptr<Recorder> recorder(new Recorder(keep_bytes));
  if (directory.empty()) {
    if (absl::Status s = store::CheckDefaultRunDirectory(); !s.ok()) return s;
    return recorder;
  }
  bool holds_run = false;
  absl::StatusOr<store::Directory> opened =
      store::PrepareRunDirectory(directory, may_resume ? &holds_run : nullptr);
  if (!opened.ok()) return opened.status();
  recorder->directory_ = *std::move(opened);
  recorder->unfinished_ = holds_run;
  if (absl::Status s = recorder->directory_->Lock(); !s.ok()) return s;
  return recorder;
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Create(const std::string& directory,
                                                           uint64_t keep_bytes) {
  return Create(directory, keep_bytes, /*may_resume=*/false);
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::CreateOrResume(const std::string& directory,
                                                                   uint64_t keep_bytes) {
  return Create(directory, keep_bytes, /*may_resume=*/true);
}

absl::Status Recorder::Resume(const std::function<void(const std::string& line)>& say) {
  if (!unfinished_) return absl::OkStatus();
  const store::RunSettings recorded = store::ReadRunSettings(directory());
  ChosenMarker marker;
  marker.text = settings_.step_marker;
  if (!marker.text.empty() && marker.text != recorded.step_marker) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory(), " holds an unfinished run that was recorded ",
                     recorded.step_marker.empty() ? "without --step-marker"
                                                  : absl::StrCat("with --step-marker ", recorded.step_marker),
                     "; use the same marker, or choose another directory"));
  }
  if (marker.text.empty()) {
    marker.TakeFrom(directory());
    SetStepMarker(marker);
  }
  if (directory_->Exists(store::kRollUpFolder)) {
    absl::StatusOr<std::unique_ptr<store::RollUpRecording>> roll_ups = store::RollUpRecording::Resume(
        *directory_, Version(), keep_bytes_ / kRollUpsOfKept, MonotonicNs(), NowNs());
    if (!roll_ups.ok()) return roll_ups.status();
    roll_ups_ = *std::move(roll_ups);
    job_.KeepRollUps(roll_ups_->Sequences());
  }
  absl::StatusOr<store::Resumed> resumed = store::ResumeRun(*directory_, job_, NowNs());
  if (!resumed.ok()) return resumed.status();
  for (const std::string& note : resumed->notes) say(note);
  if (resumed->recording.logs.empty()) return absl::OkStatus();
  recording_ = std::make_unique<store::RunRecording>(
      *directory_, Version(), keep_bytes_ - (roll_ups_ == nullptr ? 0 : keep_bytes_ / kRollUpsOfKept),
      resumed->recording);
  for (size_t i = 0; i < resumed->processes.size(); ++i) {
    if (resumed->processes[i] != nullptr) logs_[resumed->processes[i]] = recording_->log(i);
  }
  say(absl::StrCat("resuming the run in ", directory(), ": ", job_.processes().size(),
                   job_.processes().size() == 1 ? " process is" : " processes are", " on record"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Recorder::Open(const v1::Hello& hello,
                                                                  std::string_view raw) {
  if (!directory_.has_value()) {
    absl::StatusOr<store::Directory> made = store::Directory::MakeNew(
        store::DefaultRunDirectory(name_.empty() ? store::RunName(hello.identity()) : name_, NowNs()));
    if (made.ok() && !folder_in_default_.empty())
      made = store::Directory::Make(absl::StrCat(made->path(), "/", folder_in_default_));
    if (!made.ok()) return made.status();
    directory_ = *std::move(made);
    if (absl::Status s = directory_->Lock(); !s.ok()) return s;
  }
  if (recording_ == nullptr) {
    const bool rolls_up = store::RollUpRecording::IsWanted(hello.identity().world_size());
    const uint64_t of_roll_ups = rolls_up ? keep_bytes_ / kRollUpsOfKept : 0;
    recording_ =
        std::make_unique<store::RunRecording>(*directory_, Version(), keep_bytes_ - of_roll_ups, NowNs());
    Note(store::WriteRunSettings(*directory_, settings_));
    if (rolls_up) {
      absl::StatusOr<std::unique_ptr<store::RollUpRecording>> roll_ups =
          store::RollUpRecording::Make(*directory_, Version(), of_roll_ups, NowNs());
      // Without them, the hub gets records.
      if (roll_ups.ok()) {
        roll_ups_ = *std::move(roll_ups);
        job_.KeepRollUps();
      } else {
        log::Warn(absl::StrCat("this job is not rolled up: ", roll_ups.status().message()));
      }
    }
  }
  model::ProcessModel& process = job_.Join(hello);
  ++changes_;
  store::RunRecording::Log*& log = logs_[&process];
  if (log != nullptr) {
    Note(log->AppendHello(raw, MonotonicNs()));
    Note(log->Flush());  // the client resumes after what was applied, so that must be on record
  } else {
    absl::StatusOr<store::RunRecording::Log*> opened = recording_->Open(hello, raw, MonotonicNs());
    if (!opened.ok()) return opened.status();
    log = *opened;
  }
  if (roll_ups_ != nullptr) Note(roll_ups_->Open(process, MonotonicNs()));
  return std::make_unique<Sink>(*this, process, *log);
}

void Recorder::RotateIfDue() {
  if (!recording_->Due()) return;
  const auto state = [this](absl::FunctionRef<void(std::string_view)> part) { job_.SaveState(part); };
  if (absl::Status s = recording_->Rotate(state, NowNs()); !s.ok() && !said_rotation_trouble_) {
    said_rotation_trouble_ = true;
    log::Warn(absl::StrCat("the run may grow beyond --keep: ", s.message()));
  }
}

void Recorder::Note(const absl::Status& status) {
  if (status.ok() || said_disk_trouble_) return;
  said_disk_trouble_ = true;
  log::Warn(absl::StrCat("records are no longer written: ", status.message(), "; they are still counted"));
}

void Recorder::SetStepMarker(const ChosenMarker& marker) {
  job_.SetStepMarker(marker.marker);
  settings_.step_marker = marker.text;
}

void Recorder::WatchForHangs(const HangOptions& options, HangWatch::Say say, render::Layout layout) {
  rank_options_ = options;
  if (options.seconds != HangOptions().seconds) settings_.hang_after_s = options.seconds;
  hang_watch_ = std::make_unique<HangWatch>(
      options.after_ns(), std::move(say), [this](const v1::HangVerdict& verdict) { NoteVerdict(verdict); },
      layout);
}

void Recorder::NoteVerdict(const v1::HangVerdict& verdict) {
  job_.ApplyVerdict(verdict);
  v1::Frame frame;
  *frame.mutable_hang_verdict() = verdict;
  NoteOfJob(frame);
}

void Recorder::NoteRaise(const v1::DetailRaise& raise) {
  if (job_.processes().empty() || !job_.ApplyRaise(raise)) return;
  v1::Frame frame;
  *frame.mutable_detail_raise() = raise;
  NoteOfJob(frame);
}

void Recorder::NoteOwnRaise(bool job_is_over) {
  if (const std::optional<v1::DetailRaise> raise = captures_.TakeRaise(job_is_over)) NoteRaise(*raise);
}

void Recorder::NoteOfJob(const v1::Frame& frame) {
  ++changes_;
  const auto log = logs_.find(job_.processes().front().get());
  if (log != logs_.end()) Append(*log->first, *log->second, frame.SerializeAsString());
}

void Recorder::Raise(DetailWatch::Decision decision) {
  captures_.Raise(std::move(decision), CapturedProcesses());
}

void Recorder::RaiseIfDue() {
  NoteOwnRaise();
  if (is_watched_elsewhere_ || job_.trace().processes().empty()) return;
  const bool all_here = connected_.size() == job_.processes().size();
  const bool hangs = hang_watch_ != nullptr && !hang_watch_->Statements().empty();
  std::optional<DetailWatch::Decision> decision =
      detail_watch_.Look(job_, all_here && !hangs && !captures_.under_way(), MonotonicNs(), NowNs());
  if (decision.has_value()) Raise(*std::move(decision));
}

void Recorder::Tick() {
  ObserveIfDue();
  if (captures_.under_way()) captures_.Tick(CapturedProcesses());
  RaiseIfDue();
  if (hang_watch_ != nullptr) hang_watch_->Tick(job_, NowNs(), MonotonicNs());
  if (recording_ != nullptr) Note(recording_->FlushIfDue(MonotonicNs()));
  RollUpIfDue();
  if (recording_ != nullptr) LookIfDue();
}

// A process whose connection breaks is ending: its status is there for a moment, until its parent takes it.
void Recorder::AwaitEnd(model::ProcessModel& process) {
  constexpr int kMostMs = 20;
  const auto found = observers_.find(&process);
  if (found == observers_.end() || end_patience_ms_ <= 0) return;
  const uint64_t began_ns = MonotonicNs();
  found->second->AwaitEnd(std::min(kMostMs, end_patience_ms_));
  end_patience_ms_ -= static_cast<int>((MonotonicNs() - began_ns) / 1'000'000);
}

// The flight recorder's ring is a help for the worst case: without it, everything else goes on.
int Recorder::ShareRing(model::ProcessModel& process, const std::string& log) {
  const v1::Identity& identity = process.identity();
  if (!std::exchange(looked_for_rings_, true)) store::RemoveForsakenRings();
  absl::StatusOr<std::unique_ptr<store::SharedRing>> ring =
      store::SharedRing::Make(*directory_, log, identity, AttemptOf(identity));
  if (!ring.ok()) {
    if (!std::exchange(said_ring_trouble_, true))
      log::Warn(
          absl::StrCat("there is no memory for the flight recorder, so that gpuprobe autopsy will know "
                       "nothing of processes that are killed: ",
                       ring.status().message()));
    return -1;
  }
  std::unique_ptr<store::SharedRing>& kept = rings_[&process];
  kept = *std::move(ring);
  return kept->TakeDescriptor();
}

void Recorder::DropRing(const model::ProcessModel& process) {
  const auto found = rings_.find(&process);
  if (found == rings_.end()) return;
  found->second->Drop(*directory_);
  rings_.erase(found);
}

void Recorder::KeepRing(const model::ProcessModel& process, flight::Ending ending, uint64_t now_ns) {
  const auto found = rings_.find(&process);
  if (found == rings_.end()) return;
  Note(found->second->Keep(*directory_, ending, now_ns));
  rings_.erase(found);
}

// A program may close the probe's socket and live on: it goes on writing to the ring.
bool Recorder::MayGoOn(model::ProcessModel& process) const {
  const auto found = observers_.find(&process);
  return found != observers_.end() && !found->second->HasEnded();
}

void Recorder::NoteChildEnd(pid_t pid, int wait_status) {
  for (const auto& [process, observer] : observers_) {
    if (observer->pid() == pid) observer->NoteStatus(wait_status);
  }
}

void Recorder::Observe(model::ProcessModel& process, observe::ProcessObserver& observer, bool last) {
  RecordObservation(process, observer.Look(NowNs(), MonotonicNs(), last));
}

// A run of a second, too, says whether its hosts had a CPU.
void Recorder::CountUntilBye(model::ProcessModel& process) {
  const auto found = observers_.find(&process);
  if (found != observers_.end()) RecordObservation(process, found->second->Count(NowNs(), MonotonicNs()));
}

void Recorder::RecordObservation(model::ProcessModel& process, std::optional<v1::ProcessObservation> seen) {
  if (!seen.has_value()) return;
  process.ApplyObservation(*seen);
  v1::Frame frame;
  *frame.mutable_process_observation() = *std::move(seen);
  Record(process, frame);
}

void Recorder::Record(const model::ProcessModel& process, const v1::Frame& frame) {
  ++changes_;
  if (const auto log = logs_.find(&process); log != logs_.end())
    Append(process, *log->second, frame.SerializeAsString());
}

void Recorder::Append(const model::ProcessModel& process, store::RunRecording::Log& log,
                      std::string_view raw) {
  Note(log.Append(raw, MonotonicNs()));
  if (roll_ups_ != nullptr) Note(roll_ups_->Append(process, raw, MonotonicNs()));
}

void Recorder::RollUpIfDue() {
  if (roll_ups_ == nullptr || !roll_ups_->IsDue(MonotonicNs())) return;
  Note(recording_->Flush());
  Note(roll_ups_->RollUpAll(job_, MonotonicNs(), NowNs()));
}

std::string Recorder::directory_for_hub() const {
  return roll_ups_ == nullptr ? directory() : absl::StrCat(directory(), "/", store::kRollUpFolder);
}

std::unique_ptr<observe::DeviceWatch> Recorder::MakeDeviceWatch() {
  const char* const wanted = std::getenv("GPUPROBE_GPU_HEALTH");
  if (wanted != nullptr && std::string_view(wanted) == "0") return nullptr;
  return std::make_unique<observe::DeviceWatch>();
}

void Recorder::ObserveDevices() {
  if (device_watch_ == nullptr) return;
  std::map<std::string, std::vector<std::pair<model::ProcessModel*, uint32_t>>> users;  // by uuid
  for (const auto& [process, observer] : observers_) {
    for (const auto& [ordinal, device] : process->devices()) {
      if (device.kernels == 0 || device.info.uuid().empty()) continue;
      users[device.info.uuid()].emplace_back(process, ordinal);
      device_watch_->Add(device.info.uuid());
    }
  }
  for (auto& [uuid, seen] : device_watch_->Take()) {
    for (const auto& [process, ordinal] : users[uuid]) {
      seen.set_device(ordinal);
      process->ApplyDevice(seen);
      v1::Frame frame;
      *frame.mutable_device_observation() = seen;
      Record(*process, frame);
    }
  }
}

void Recorder::ObserveIfDue() {
  constexpr uint64_t kEveryNs = 1'000'000'000;
  const bool due = MonotonicNs() >= next_observation_ns_;
  if (due) {
    next_observation_ns_ = MonotonicNs() + kEveryNs;
    ObserveDevices();
  }
  for (auto it = observers_.begin(); it != observers_.end();) {
    if (due || it->second->HasEnded()) Observe(*it->first, *it->second, /*last=*/false);
    if (it->second->said_end()) KeepRing(*it->first, flight::Ending::kConnectionLost, NowNs());
    it = it->second->said_end() ? observers_.erase(it) : std::next(it);
  }
}

void Recorder::LookIfDue() {
  constexpr uint64_t kEveryNs = 1'000'000'000;
  if (MonotonicNs() < next_look_ns_) return;
  next_look_ns_ = MonotonicNs() + kEveryNs;
  status_ = live_watch_.Look(job_, NowNs());
  if (hang_watch_ != nullptr) status_.hangs = hang_watch_->Statements();
  // If this cannot be written, neither can the logs, and their error is reported.
  directory_->WriteFile(store::kLiveFile, absl::StrCat(render::LiveJson(status_), "\n")).IgnoreError();
}

analysis::Report Recorder::Finish(const std::vector<std::string>& command_line) {
  for (const auto& [process, observer] : observers_) {
    if (observer->HasEnded()) Observe(*process, *observer, /*last=*/true);
  }
  observers_.clear();
  while (!rings_.empty()) KeepRing(*rings_.begin()->first, flight::Ending::kCollectorEnded, NowNs());
  NoteOwnRaise(/*job_is_over=*/true);
  Note(recording_->Close());
  const analysis::ReportInput input = InputFor(command_line);
  captures_.End();
  logs_.clear();
  recording_.reset();
  job_.Finish();
  if (roll_ups_ != nullptr) Note(roll_ups_->RollUpEnd(job_, MonotonicNs()));
  job_.KeepNoRollUps();
  for (int again = 0; again < model::JobModel::kReplays && job_.LearnedOfSteps(); ++again) CountStepsAgain();
  analysis::Report report = analysis::BuildReport(job_, input);
  report_written_ = WriteReport(job_, report);
  if (roll_ups_ != nullptr) Note(roll_ups_->Close(job_, MonotonicNs()));
  directory_->Remove(store::kLiveFile);  // who looks finds this or the report
  return report;
}

// Replays the logs, while they hold the whole run: the totals contain the first guess at the steps.
void Recorder::CountStepsAgain() {
  const store::RunFiles files = Files();
  if (!files.totals.empty() || files.FirstGeneration() != 1) return;
  const std::string state = job_.SaveState();
  job_.BeginAgain();
  const absl::StatusOr<store::Replayed> replayed = store::ReplaySoFar(directory(), job_);
  if (replayed.ok() && replayed->damages.empty()) {
    job_.Finish();
  } else {
    Note(job_.LoadState(state));
  }
}

analysis::ReportInput Recorder::InputFor(const std::vector<std::string>& command_line) const {
  analysis::ReportInput input;
  input.collector_version = Version();
  input.command_line = command_line;
  input.work = work_;
  input.hang_after_ns = rank_options_.after_ns();
  input.link_peak = rank_options_.link_peak;
  input.unrecorded_frames = recording_->unrecorded_frames();
  input.detail_since_ns = recording_->detail_since_ns();
  input.last_moments = LastMomentsIn(directory(), Missing::kLeaveOut);
  return input;
}

absl::Status Recorder::WriteReport(const model::JobModel& job, const analysis::Report& report) const {
  return WriteReportFiles(*directory_, Files(), job, report);
}

store::RunFiles Recorder::Files() const {
  absl::StatusOr<store::RunFiles> files = store::ListRun(*directory_);
  return files.ok() ? *std::move(files) : store::RunFiles{};
}

analysis::JobNumbers Recorder::NumbersNow() const { return analysis::NumbersOf(job_, NowNs()); }

std::optional<http::DocumentBuilder::Order> Recorder::OrderDocuments(
    const std::vector<std::string>& command_line) {
  if (recording_ == nullptr || job_.processes().empty()) return std::nullopt;
  Note(recording_->FlushIfDue(MonotonicNs()));
  return http::DocumentBuilder::Order{.state = job_.SaveState(),
                                      .saving = {},
                                      .marker = job_.step_marker(),
                                      .input = InputFor(command_line),
                                      .files = Files(),
                                      .changes = changes_};
}

absl::Status Recorder::WriteReportSoFar() {
  model::JobModel copy;
  copy.SetStepMarker(job_.step_marker());
  if (absl::Status s = copy.LoadState(job_.SaveState()); !s.ok()) return s;
  copy.Finish();
  return WriteReport(copy, analysis::BuildReport(copy, InputFor({})));
}

void Recorder::RemoveIfEmpty() {
  if (directory_.has_value() && directory_->made() && !heard_anything()) directory_->RemoveIfEmpty();
}

}  // namespace gpuprobe::recording
