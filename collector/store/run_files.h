// Names of the files in a run directory, and which of them exist.
//
// The names are a contract between recording, replay and export: <log>.gpr is the first segment of a
// process's log and <log>.NNNN.gpr the one of generation NNNN; totals-NNNN.gpt holds the totals of everything
// that came before generation NNNN began. A directory that holds run directories, those of a job's hosts, is
// one run: n1/rank-0.gpr and n2/rank-8.gpr are its logs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/store/directory.h"

namespace gpuprobe::store {

// Gives a model's state to the function it is called with, part by part.
using StateSource = absl::FunctionRef<void(absl::FunctionRef<void(std::string_view)>)>;

inline constexpr char kLogSuffix[] = ".gpr";
inline constexpr char kTotalsSuffix[] = ".gpt";
// A folder of a run: what its records were rolled up to, which is a run of its own.
inline constexpr char kRollUpFolder[] = "roll-up";
// What `gpuprobe top` reads; there while the run is recorded.
inline constexpr char kLiveFile[] = "live.json";
// In a job's directory at a hub: its name and the attempt, a line each.
inline constexpr char kJobFile[] = "job.txt";

struct Segment {
  std::string path;
  std::string name;  // of the file; with its host's folder where there are several
  std::string log;   // "rank-3": the segments of one process share it
  uint32_t generation = 1;
};

struct RunFiles {
  std::vector<Segment> segments;           // by log, then by generation
  std::map<uint32_t, std::string> totals;  // path by generation
  std::vector<std::string> hosts;          // the folders, if there are several runs in one

  // Above 1: earlier detail was dropped.
  uint32_t FirstGeneration() const;
};

// A name that may come from another host: letters, digits, hyphens, underscores and dots, which are not the
// first.
inline constexpr size_t kMostNameCharacters = 100;
bool IsPlainName(std::string_view name);

std::string SegmentName(const std::string& log, uint32_t generation);
std::string TotalsName(uint32_t generation);

// Whether runs that have become one may lack detail: totals of several runs cannot be put together.
enum class Dropped { kRefuse, kAllow };

// NotFound or FailedPrecondition when `path` is not a run directory, or holds runs of which one has dropped
// detail.
absl::StatusOr<RunFiles> ListRun(const std::string& path, Dropped dropped = Dropped::kRefuse);
// Several runs, each a host's part of one job, as one.
absl::StatusOr<RunFiles> ListRuns(const std::vector<std::string>& paths);
// The files of a run that is being recorded.
absl::StatusOr<RunFiles> ListRun(const Directory& directory);

// The totals are cut into Frames and written in one step: the file is there whole, or not at all.
absl::Status WriteTotals(const Directory& directory, const std::string& name, const std::string& version,
                         uint64_t now_ns, StateSource state);
absl::StatusOr<std::string> ReadTotals(const std::string& path);

}  // namespace gpuprobe::store
