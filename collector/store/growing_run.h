// Reads a run, of one host or of several, while it is being recorded: each look applies what was written
// since the last one.
//
// Nothing is locked: a chunk that is not whole yet is read at a later look. A log that goes on in a new
// generation is followed there. Used from one thread.
#pragma once

#include <cstdint>
#include <map>
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

  explicit GrowingRun(std::string path) : path_(std::move(path)) {}

  // Into `job`, which is empty at the first look and the same at each. An error as of ListRun, or of a log
  // that cannot be opened; what could be read has been applied. `after_batch`: called after each.
  absl::Status Look(
      model::JobModel& job, AfterBatch after_batch = [](const model::ProcessModel&) {});

  // Names of the hosts' folders at the last look; empty: one run.
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  struct Log {
    std::vector<Segment> segments;  // by generation
    size_t at = 0;                  // the segment that is being read
    RunSource source;               // without a reader: not opened
  };
  static absl::Status ReadAgain(Log& log);

  std::string path_;
  std::vector<std::string> hosts_;
  std::map<std::string, Log> logs_;
};

}  // namespace gpuprobe::store
