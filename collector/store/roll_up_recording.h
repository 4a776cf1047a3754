// Writes roll-ups of what is recorded (model/process/roll_up.h) beside it: what a hub needs of a job with
// many ranks.
//
// They are a run of their own, in a folder of the run's directory. A process is rolled up every second or
// two, or when it has kMostSteps, after its log was written, so that roll-ups never have what the log lacks.
// Everything that is known of it goes with them now and then: soon after it began, ever less often later, as
// soon as it seems to stand still, and at the end. Used from the recorder's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/model/job/job_model.h"
#include "collector/store/directory.h"
#include "collector/store/run_recording.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::store {

class RollUpRecording {
 public:
  static constexpr uint64_t kEveryNs = 1'000'000'000;
  // Of a job whose roll-ups are coarse (RollUp::kMostExact), which has the most of them.
  static constexpr uint64_t kCoarseEveryNs = 2'000'000'000;
  // When the whole state of a process is written: first after so long, and then at intervals that double up
  // to the longest. Where roll-ups are coarse it is written less often: a hub reads few processes in such
  // detail, and a state takes about a hundred kilobytes.
  static constexpr uint64_t kFirstWholeNs = 10'000'000'000;
  static constexpr uint64_t kMostBetweenWholeNs = 320'000'000'000;
  static constexpr uint64_t kCoarseFirstWholeNs = 40'000'000'000;
  static constexpr uint64_t kCoarseMostBetweenWholeNs = 3'600'000'000'000;
  // Whoever reads them compares steps of all ranks while the model keeps them: CompletedSteps::kKept.
  static constexpr size_t kMostSteps = 128;
  // Of a process of which nothing has come for so long.
  static constexpr uint64_t kStandsStillNs = 5'000'000'000;

  // Whether a job of so many ranks is rolled up (GPUPROBE_ROLL_UP_FROM).
  static bool IsWanted(int world_size);

  // Makes the folder. Times here and below as of RunRecording.
  static absl::StatusOr<std::unique_ptr<RollUpRecording>> Make(const Directory& run,
                                                               const std::string& version,
                                                               uint64_t keep_bytes, uint64_t realtime_ns);

  // The folder is there, and its collector died: goes on behind what is whole.
  static absl::StatusOr<std::unique_ptr<RollUpRecording>> Resume(const Directory& run,
                                                                 const std::string& version,
                                                                 uint64_t keep_bytes, uint64_t now_ns,
                                                                 uint64_t realtime_ns);
  // Up to which batch each process is rolled up, if it went on with a run.
  std::map<model::JobModel::ProcessKey, uint64_t> Sequences() const;

  absl::Status Open(const model::ProcessModel& process, uint64_t now_ns);
  // What stands in the log between batches.
  absl::Status Append(const model::ProcessModel& process, std::string_view raw, uint64_t now_ns);
  // Of one process: what has come since the last time, if anything has.
  absl::Status RollUp(const model::JobModel& job, model::ProcessModel& process, uint64_t now_ns);
  // Whether that cannot wait until it is due.
  static bool IsDue(const model::ProcessModel& process) { return process.StepsToRollUp() >= kMostSteps; }
  // Of all, when it is due; begins a new generation when that is due. Their logs are written.
  bool IsDue(uint64_t now_ns) const { return now_ns >= next_ns_; }
  absl::Status RollUpAll(model::JobModel& job, uint64_t now_ns, uint64_t realtime_ns);
  // The job is over: what its end made known.
  absl::Status RollUpEnd(model::JobModel& job, uint64_t now_ns);
  // Everything that is known of it, of `job`, which may have been read again, and closes the logs.
  absl::Status Close(model::JobModel& job, uint64_t now_ns);

 private:
  struct Rank {
    RunRecording::Log* log = nullptr;
    uint64_t last_sequence = 0;  // of a batch that was rolled up
    uint64_t changed_ns = 0;     // when something came
    uint64_t whole_ns = 0;       // when everything was written, or it began
    uint64_t whole_after_ns = 0;
    bool stands_still = false;  // that was written
  };
  RollUpRecording(Directory directory, const std::string& version, uint64_t keep_bytes, uint64_t realtime_ns)
      : directory_(std::move(directory)), recording_(directory_, version, keep_bytes, realtime_ns) {
    recording_.PreferSmall();
  }
  RollUpRecording(Directory directory, const std::string& version, uint64_t keep_bytes,
                  const RunRecording::Unfinished& run)
      : directory_(std::move(directory)), recording_(directory_, version, keep_bytes, run) {
    recording_.PreferSmall();
  }
  absl::Status Write(Rank& rank, const v1::Batch& roll_up, uint64_t now_ns);
  absl::Status WriteWhole(Rank& rank, const model::JobModel& job, model::ProcessModel& process,
                          uint64_t now_ns);

  Directory directory_;
  RunRecording recording_;
  std::map<model::JobModel::ProcessKey, Rank> ranks_;
  uint64_t every_ns_ = kEveryNs;
  uint64_t next_ns_ = 0;
};

}  // namespace gpuprobe::store
