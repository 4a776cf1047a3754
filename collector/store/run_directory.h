// A run's directory: which files are in it, what they are called, and how the whole of it is replayed.
//
// Names are a contract (rank-<r>.gpr, report.json, report.html). Replay interleaves the logs by time, so that
// the model sees records in about the order in which the live collector saw them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/model/job/job_model.h"
#include "collector/store/directory.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_reader.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::store {

// gpuprobe-runs/<UTC yyyymmddThhmmssZ>-<name>, the name reduced to characters allowed in file names. It may
// exist.
std::string DefaultRunDirectory(const std::string& name, uint64_t now_ns);
// The name for a run: the script or program that the process runs.
std::string RunName(const v1::Identity& identity);

// Opens `path` to be recorded into: creates it, and refuses one that cannot be written, that others could
// exchange (see CheckPlace), or that already holds a run.
// `unfinished`, if given: a run whose report was not written is not refused, and it says whether there is
// one.
absl::StatusOr<Directory> PrepareRunDirectory(const std::string& path, bool* unfinished = nullptr);
// Whether DefaultRunDirectory could be made in the working directory.
absl::Status CheckDefaultRunDirectory();

// Name of a process's log in `directory`, without suffix: rank-<r>, for a second process of that rank
// rank-<r>-<pid>, without rank pid-<pid>. `taken`: names whose files may be gone.
std::string LogName(const Directory& directory, const v1::Identity& identity,
                    const std::set<std::string>& taken = {});

struct Replayed {
  std::vector<Damage> damages;   // everything before each was applied
  uint64_t detail_since_ns = 0;  // what came before was dropped: it is in totals only; 0: nothing was
  std::map<uint32_t, uint64_t> began_ns;                   // of each generation that has a log
  std::map<const model::ProcessModel*, std::string> logs;  // the log that each process wrote last
  bool from_start = false;                                 // every log was read, and no totals
};

// Replays a run into `job`, which is empty, and settles it: from the newest totals that can be read and what
// was recorded after them, else from every log. Replays a second time if only the whole run showed how steps
// are delimited. NotFound or FailedPrecondition when `path` is not a run directory.
absl::StatusOr<Replayed> Replay(const std::string& path, model::JobModel& job);
// Sees every batch right after its process has applied it.
using BatchWatcher = absl::FunctionRef<void(const model::ProcessModel& process, const v1::Batch& batch)>;
// `forget` is called when the batches watched so far are void and come again.
absl::StatusOr<Replayed> Replay(const std::string& path, model::JobModel& job, BatchWatcher watch,
                                absl::FunctionRef<void()> forget);
// The files of a run that have been listed.
absl::StatusOr<Replayed> Replay(const RunFiles& files, model::JobModel& job);
absl::StatusOr<Replayed> Replay(const RunFiles& files, model::JobModel& job, BatchWatcher watch,
                                absl::FunctionRef<void()> forget);

// The same without settling it: processes may still be running.
absl::StatusOr<Replayed> ReplaySoFar(const std::string& path, model::JobModel& job);

}  // namespace gpuprobe::store
