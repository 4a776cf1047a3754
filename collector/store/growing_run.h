// Reads a run, of one host or of several, while it is being recorded: each look applies what was written
// since the last one.
//
// Nothing is locked: a chunk that is not whole yet is read at a later look. A log that goes on in a new
// generation is followed there.
//
// A large job's hosts report far apart, and its ranks' calls are compared once all ranks have reported them.
// So logs are not read far beyond those that are behind, or ranks that have not come yet, as long as these
// may be expected (kPatience). Used from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collector/model/job/job_model.h"
#include "collector/store/run_source.h"

namespace gpuprobe::store {

class GrowingRun {
 public:
  using AfterBatch = absl::FunctionRef<void(const model::ProcessModel& process)>;
  // How long a log that does not grow holds the others back; a host that writes nothing for so long is
  // silent.
  static constexpr std::chrono::seconds kPatience{30};

  explicit GrowingRun(std::string path) : path_(std::move(path)) {}

  // Into `job`, which is empty at the first look and the same at each. An error as of ListRun, or of a log
  // that cannot be opened; what could be read has been applied. `after_batch`: called after each. `is_last`:
  // nothing more will come.
  absl::Status Look(
      model::JobModel& job, AfterBatch after_batch = [](const model::ProcessModel&) {}, bool is_last = false);
  // The last look has left something unread.
  bool is_held_back() const { return is_held_back_; }

  // Names of the hosts' folders at the last look; empty: one run.
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Log {
    std::vector<Segment> segments;  // by generation
    size_t at = 0;                  // the segment that is being read
    RunSource source;               // without a reader: not opened
    // When it was seen to grow, and up to which time of recording it went then.
    Clock::time_point grew;
    uint64_t last_ns = 0;
  };
  static absl::Status ReadAgain(Log& log);
  // Whether more of a log at its end may come, which ranks wait for.
  bool Awaits(const Log& log) const;
  // Whether ranks that the launcher speaks of may still come.
  bool AwaitsRanks(const model::JobModel& job) const;

  std::string path_;
  std::vector<std::string> hosts_;
  std::map<std::string, Log> logs_;
  std::optional<Clock::time_point> came_;  // when the newest did, if after the first look
  Clock::time_point now_;                  // of the last look
  bool is_held_back_ = false;
};

}  // namespace gpuprobe::store
