#include "collector/store/roll_up_recording.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/model/process/roll_up.h"
#include "collector/store/run_files.h"
#include "collector/store/run_resume.h"

namespace gpuprobe::store {
namespace {

constexpr char kFromVariable[] = "GPUPROBE_ROLL_UP_FROM";
constexpr int kFromRanks = 512;

// Whether there is anything in it that its reader does not know.
bool IsNews(const v1::Batch& roll_up) {
  return roll_up.has_rank_steps() || roll_up.has_arrivals() || roll_up.has_finished_calls() ||
         roll_up.has_collectives() || roll_up.communicators_size() > 0;
}

bool IsCoarse(const model::ProcessModel& process) {
  return process.identity().world_size() > model::RollUp::kMostExact;
}

}  // namespace

bool RollUpRecording::IsWanted(int world_size) {
  const char* const wanted = std::getenv(kFromVariable);
  int from = kFromRanks;
  if (wanted == nullptr || !absl::SimpleAtoi(wanted, &from) || from < 1) from = kFromRanks;
  return world_size >= from;
}

absl::StatusOr<std::unique_ptr<RollUpRecording>> RollUpRecording::Make(const Directory& run,
                                                                       const std::string& version,
                                                                       uint64_t keep_bytes,
                                                                       uint64_t realtime_ns) {
  absl::StatusOr<Directory> directory = Directory::Make(absl::StrCat(run.path(), "/", kRollUpFolder));
  if (!directory.ok()) return directory.status();
  return std::unique_ptr<RollUpRecording>(
      new RollUpRecording(*std::move(directory), version, keep_bytes, realtime_ns));
}

absl::StatusOr<std::unique_ptr<RollUpRecording>> RollUpRecording::Resume(const Directory& run,
                                                                         const std::string& version,
                                                                         uint64_t keep_bytes, uint64_t now_ns,
                                                                         uint64_t realtime_ns) {
  absl::StatusOr<Directory> directory = Directory::Make(absl::StrCat(run.path(), "/", kRollUpFolder));
  if (!directory.ok()) return directory.status();
  model::JobModel job;
  absl::StatusOr<Resumed> resumed = ResumeRun(*directory, job, realtime_ns);
  if (!resumed.ok()) return resumed.status();
  if (resumed->recording.logs.empty()) return Make(run, version, keep_bytes, realtime_ns);
  std::unique_ptr<RollUpRecording> roll_ups(
      new RollUpRecording(*std::move(directory), version, keep_bytes, resumed->recording));
  for (size_t i = 0; i < resumed->processes.size(); ++i) {
    const model::ProcessModel* const process = resumed->processes[i];
    if (process == nullptr) continue;
    Rank& rank = roll_ups->ranks_[model::JobModel::KeyOf(process->hello())];
    rank.log = roll_ups->recording_.log(i);
    rank.last_sequence = process->last_sequence();
    rank.changed_ns = rank.whole_ns = now_ns;
    rank.whole_after_ns = IsCoarse(*process) ? kCoarseFirstWholeNs : kFirstWholeNs;
  }
  return roll_ups;
}

std::map<model::JobModel::ProcessKey, uint64_t> RollUpRecording::Sequences() const {
  std::map<model::JobModel::ProcessKey, uint64_t> sequences;
  for (const auto& [key, rank] : ranks_) sequences[key] = rank.last_sequence;
  return sequences;
}

absl::Status RollUpRecording::Open(const model::ProcessModel& process, uint64_t now_ns) {
  v1::Frame frame;
  *frame.mutable_hello() = process.hello();
  frame.mutable_hello()->set_rolled_up(true);
  const std::string raw = frame.SerializeAsString();
  const bool coarse = IsCoarse(process);
  if (coarse) every_ns_ = kCoarseEveryNs;
  Rank& rank = ranks_[model::JobModel::KeyOf(process.hello())];
  rank.changed_ns = rank.whole_ns = now_ns;
  rank.whole_after_ns = coarse ? kCoarseFirstWholeNs : kFirstWholeNs;
  if (rank.log != nullptr) return rank.log->AppendHello(raw, now_ns);  // it came back
  absl::StatusOr<RunRecording::Log*> log = recording_.Open(frame.hello(), raw, now_ns);
  if (log.ok()) rank.log = *log;
  return log.status();
}

absl::Status RollUpRecording::Append(const model::ProcessModel& process, std::string_view raw,
                                     uint64_t now_ns) {
  const auto rank = ranks_.find(model::JobModel::KeyOf(process.hello()));
  if (rank == ranks_.end() || rank->second.log == nullptr) return absl::OkStatus();
  return rank->second.log->Append(raw, now_ns);
}

absl::Status RollUpRecording::Write(Rank& rank, const v1::Batch& roll_up, uint64_t now_ns) {
  v1::Frame frame;
  *frame.mutable_batch() = roll_up;
  rank.last_sequence = roll_up.sequence();
  return rank.log->AppendBatch(roll_up, frame.SerializeAsString(), now_ns);
}

absl::Status RollUpRecording::WriteWhole(Rank& rank, const model::JobModel& job, model::ProcessModel& process,
                                         uint64_t now_ns) {
  v1::Frame frame;
  *frame.mutable_batch() = job.WholeState(process);
  if (!frame.batch().has_process_state()) return absl::OkStatus();
  return rank.log->AppendApart(frame.SerializeAsString(), now_ns);
}

absl::Status RollUpRecording::RollUp(const model::JobModel& job, model::ProcessModel& process,
                                     uint64_t now_ns) {
  const auto found = ranks_.find(model::JobModel::KeyOf(process.hello()));
  if (found == ranks_.end() || found->second.log == nullptr) {
    process.TakeRollUp();  // its log could not be made, which was said: nothing may pile up
    return absl::OkStatus();
  }
  Rank& rank = found->second;
  const bool came = process.last_sequence() != rank.last_sequence;
  const bool still = !rank.stands_still && now_ns >= rank.changed_ns + kStandsStillNs;
  const bool whole = still || (came && now_ns >= rank.whole_ns + rank.whole_after_ns);
  if (!came && !whole) return absl::OkStatus();
  const v1::Batch roll_up = job.RollUp(process);
  rank.stands_still = still || rank.stands_still;
  if (IsNews(roll_up)) {
    rank.changed_ns = now_ns;
    rank.stands_still = false;
  }
  absl::Status status = Write(rank, roll_up, now_ns);
  if (whole) {
    rank.whole_ns = now_ns;
    rank.whole_after_ns = std::min(2 * rank.whole_after_ns,
                                   IsCoarse(process) ? kCoarseMostBetweenWholeNs : kMostBetweenWholeNs);
    status.Update(WriteWhole(rank, job, process, now_ns));
  }
  status.Update(rank.log->Flush());
  return status;
}

absl::Status RollUpRecording::RollUpAll(model::JobModel& job, uint64_t now_ns, uint64_t realtime_ns) {
  next_ns_ = now_ns + every_ns_;
  absl::Status status;
  for (const auto& process : job.processes()) status.Update(RollUp(job, *process, now_ns));
  if (recording_.Due()) {
    const auto state = [&job](absl::FunctionRef<void(std::string_view)> part) { job.SaveState(part); };
    status.Update(recording_.Rotate(state, realtime_ns));
  }
  return status;
}

absl::Status RollUpRecording::RollUpEnd(model::JobModel& job, uint64_t now_ns) {
  absl::Status status;
  for (const auto& process : job.processes()) {
    Rank& rank = ranks_[model::JobModel::KeyOf(process->hello())];
    if (rank.log != nullptr) status.Update(Write(rank, job.RollUp(*process), now_ns));
  }
  return status;
}

absl::Status RollUpRecording::Close(model::JobModel& job, uint64_t now_ns) {
  absl::Status status;
  for (const auto& process : job.processes()) {
    Rank& rank = ranks_[model::JobModel::KeyOf(process->hello())];
    if (rank.log == nullptr) continue;
    status.Update(Write(rank, job.RollUp(*process), now_ns));
    status.Update(WriteWhole(rank, job, *process, now_ns));
  }
  status.Update(recording_.Close());
  return status;
}

}  // namespace gpuprobe::store
