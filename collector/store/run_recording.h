// The logs of a run while it is recorded: one a process, cut into generations so that their sum stays within
// a bound however long the job runs.
//
// All processes begin a new generation at the same moment, with the model's totals up to there in a file of
// their own (totals-NNNN.gpt) and every process's definitions restated at the head of its next segment. So
// whole old generations can be deleted: detail goes, totals stay, and a reader takes the newest totals and
// what came after them. Used from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/store/definitions.h"
#include "collector/store/directory.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_writer.h"

namespace gpuprobe::store {

class RunRecording {
 public:
  // The log of one process.
  class Log {
   public:
    // `raw`: the frame without its length. Status as of RunLogWriter::Append. `now_ns` as there.
    absl::Status AppendHello(std::string_view raw, uint64_t now_ns);
    absl::Status AppendBatch(const v1::Batch& batch, std::string_view raw, uint64_t now_ns);
    absl::Status Append(std::string_view raw, uint64_t now_ns);
    // As of RunLogWriter::AppendApart.
    absl::Status AppendApart(std::string_view raw, uint64_t now_ns);
    absl::Status Flush();
    // Highest sequence of a batch that is in the log, or never will be because the disk refuses.
    uint64_t on_record() const { return on_record_; }
    // Of its files, without suffix.
    const std::string& name() const { return name_; }

   private:
    friend class RunRecording;
    Log(RunRecording& run, std::string name) : run_(run), name_(std::move(name)) {}
    absl::Status Begin(uint64_t now_ns);
    absl::Status Open();
    absl::Status Write(std::string_view raw, bool apart, uint64_t now_ns);
    void End();
    // After whatever may have written.
    void Settle();

    RunRecording& run_;
    std::string name_;
    std::string hello_;
    Definitions definitions_;
    std::unique_ptr<RunLogWriter> writer_;  // null until the process says something in this generation
    bool stopped_ = false;                  // the disk refused: said once, then only counted
    bool continues_ = false;                // a file of this generation is there: its collector died
    uint64_t last_sequence_ = 0;            // appended
    uint64_t on_record_ = 0;
  };

  // As many generations fit into the bound. More would cost totals files, fewer drop more detail at once.
  static constexpr uint64_t kGenerations = 8;

  // `keep_bytes`: bound of logs and totals files together. `realtime_ns` begins the first generation.
  // `directory` outlives it.
  RunRecording(const Directory& directory, std::string version, uint64_t keep_bytes, uint64_t realtime_ns);

  // A run whose collector died, from where its logs end.
  struct Unfinished {
    uint32_t generation = 1;
    uint32_t first_generation = 1;
    std::vector<uint64_t> starts_ns;  // of every generation, from the first
    uint64_t generation_bytes = 0;
    uint64_t totals_bytes = 0;
    struct ProcessLog {
      std::string name;
      bool in_generation = false;  // it has a file there
      uint64_t last_sequence = 0;
    };
    std::vector<ProcessLog> logs;
  };
  RunRecording(const Directory& directory, std::string version, uint64_t keep_bytes, const Unfinished& run);
  // As of RunLogWriter::PreferSmall, for all logs that begin from now on.
  void PreferSmall() { small_ = true; }
  // In the order of Unfinished.logs, before any other is opened.
  Log* log(size_t index) const { return logs_[index].get(); }

  // Opens the log of a new process. It exists when this returns.
  absl::StatusOr<Log*> Open(const v1::Hello& hello, std::string_view raw, uint64_t now_ns);

  // Whether this generation is full.
  bool Due() const { return generation_bytes_ >= GenerationLimit(); }
  // Begins a new generation: what came before is in `state`, and the oldest detail is dropped until the sum
  // fits. On failure recording goes on in the old generation.
  absl::Status Rotate(StateSource state, uint64_t realtime_ns);

  absl::Status FlushIfDue(uint64_t now_ns);
  absl::Status Flush();
  // Flushes and closes everything.
  absl::Status Close();

  // When the oldest detail that is left begins, on CLOCK_REALTIME; 0: all of it is left.
  uint64_t detail_since_ns() const { return first_generation_ > 1 ? starts_ns_[first_generation_ - 1] : 0; }
  uint64_t unrecorded_frames() const;

 private:
  uint64_t GenerationLimit() const;
  absl::Status ForEach(const std::function<absl::Status(Log&)>& act);
  void DropWhatDoesNotFit();

  const Directory& directory_;
  std::string version_;
  uint64_t keep_bytes_;
  bool small_ = false;
  uint32_t generation_ = 1;
  uint32_t first_generation_ = 1;
  std::vector<uint64_t> starts_ns_;  // of every generation
  uint64_t generation_bytes_ = 0;
  uint64_t totals_bytes_ = 0;       // of the newest totals file
  uint64_t unrecorded_frames_ = 0;  // of closed segments
  std::set<std::string> names_;
  std::vector<std::unique_ptr<Log>> logs_;
};

}  // namespace gpuprobe::store
