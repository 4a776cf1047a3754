// The tables of a run, in whatever form: its records, its steps, and its report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/cli/record_rows.h"
#include "collector/cli/shared_options.h"
#include "collector/recording/recorder.h"
#include "collector/tables/table_schema.h"
#include "collector/timeline/step_log.h"

namespace gpuprobe::cli {

// A run that was replayed for its steps.
struct ReplayedRun {
  bool whole = true;  // no log is damaged
  model::JobModel job;
  timeline::StepLog steps;
};
absl::Status ReplayWithSteps(const char* command, const GivenRun& given, const StepMarkerOption& marker,
                             ReplayedRun& run);

// One line for each step and phase of each rank (tables/step_rows.h).
void PrintStepTimings(const ReplayedRun& run);

// Rows of all tables but those of records, which ForEachRecordRow gives: `step`, `report`, `report_*`.
void ForEachReportRow(const ReplayedRun& run, const EmitRow& emit);

// The tables of records and steps, which every run has.
std::vector<tables::Table> KnownTables();

enum class Rows { kAll, kNone };
// Puts all tables into `Target`, a Database or CsvFiles. Whether all logs could be read to their ends.
template <typename Target>
absl::StatusOr<bool> FillTables(const char* command, const GivenRun& given, const StepMarkerOption& marker,
                                Target& target, Rows rows = Rows::kAll);

}  // namespace gpuprobe::cli
