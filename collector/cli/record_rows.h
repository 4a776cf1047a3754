// Every record of a run as a row, log by log: what export, query and the tables are made of.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "collector/cli/given_run.h"
#include "collector/tables/placed_work.h"

namespace gpuprobe::cli {

using EmitRow = std::function<void(const std::string& row)>;  // without end of line

// Reads the logs while `go_on()`. Prints on stderr, under the name `command`, which logs are damaged and when
// the records begin.
absl::Status ForEachRecordRow(const char* command, const GivenRun& run, const std::function<bool()>& go_on,
                              const EmitRow& emit, const tables::PlacedWork* placed = nullptr);

}  // namespace gpuprobe::cli
