// The tables of a run that `gpuprobe query` asks, kept from one question to the next.
//
// Example: the first question about a run of 4.7 million records takes 15 s, most of it to fill a database.
// The database stays, and the next question takes as long as the question does.
//
// They lie in $XDG_CACHE_HOME/gpuprobe/query, or ~/.cache/gpuprobe/query, for this user alone. A database's
// name is made of the run's files (path, size, time), the step marker and this program, so it never answers
// for another state of the run. Kept are runs that have ended, are whole, and have kSmallestKept bytes of
// logs or more; of the databases, those used last, up to kMostKept and kMostKeptBytes.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "collector/cli/given_run.h"
#include "collector/cli/shared_options.h"
#include "collector/tables/database.h"

namespace gpuprobe::cli {

inline constexpr uint64_t kSmallestKept = uint64_t{256} << 10;
inline constexpr size_t kMostKept = 8;
inline constexpr uint64_t kMostKeptBytes = uint64_t{8} << 30;

// Where nothing can be kept, a temporary database. Errors are those of FillTables.
absl::StatusOr<std::unique_ptr<tables::Database>> OpenTables(const char* command, const GivenRun& run,
                                                             const StepMarkerOption& marker);

}  // namespace gpuprobe::cli
