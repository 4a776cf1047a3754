#include "collector/cli/run_tables.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/cli/output.h"
#include "collector/cli/rolled_up_line.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/report/report.h"
#include "collector/store/run_directory.h"
#include "collector/tables/csv_files.h"
#include "collector/tables/database.h"
#include "collector/tables/report_tables.h"
#include "collector/tables/step_rows.h"
#include "collector/tables/table_schema.h"

namespace gpuprobe::cli {
namespace {

// Calls visit(owner, step) for each step of each member, times as the clock said.
template <typename Visit>
void ForEachStep(const ReplayedRun& run, const Visit& visit) {
  for (const model::Member& member : run.job.ReportedMembers()) {
    const model::ProcessModel& process = *member.process;
    const v1::Identity& id = process.identity();
    const bool ranked = id.rank_source() != v1::RANK_SOURCE_NONE && id.rank() >= 0;
    const tables::StepOwner owner{.rank = ranked ? id.rank() : -1,
                                  .pid = id.pid(),
                                  .world_size = id.world_size(),
                                  .gpu = member.device()};
    for (model::StepRecord step : run.steps.Of(member.number)) {
      const uint64_t back_ns = process.SetBackAt(step.end_ns);
      step.clock_step_ns -= static_cast<int64_t>(back_ns - process.SetBackAt(step.start_ns));
      step.start_ns = process.Realtime(step.start_ns);
      step.end_ns -= back_ns;
      visit(owner, step);
    }
  }
}

}  // namespace

absl::Status ReplayWithSteps(const char* command, const GivenRun& given, const StepMarkerOption& marker,
                             ReplayedRun& run) {
  run.job.SetStepMarker(marker.marker);
  const absl::StatusOr<store::Replayed> replayed = store::Replay(
      given.directory(), run.job,
      [&](const model::ProcessModel& process, const v1::Batch&) { run.steps.Watch(process); },
      [&] { run.steps = timeline::StepLog(); });
  if (!replayed.ok()) return replayed.status();
  for (const store::Damage& damage : replayed->damages)
    Fail(command, absl::StrCat(given.name(), ": ", DamageLine(damage)), kFailed);
  if (const std::string line = RolledUpLine(run.job); !line.empty())
    SayError(absl::StrCat(command, ": ", given.name(), ": ", line));
  run.whole = replayed->damages.empty();
  run.steps.Finish(run.job);
  return absl::OkStatus();
}

void PrintStepTimings(const ReplayedRun& run) {
  ForEachStep(run, [](const tables::StepOwner& owner, const model::StepRecord& step) {
    if (OutputWorks()) Print(tables::StepTimingLines(owner, step));
  });
}

void ForEachReportRow(const ReplayedRun& run, const EmitRow& emit) {
  ForEachStep(run, [&](const tables::StepOwner& owner, const model::StepRecord& step) {
    emit(tables::StepRow(owner, step));
  });
  analysis::ReportInput input;
  input.collector_version = recording::Version();
  tables::ReportRows(render::JsonReport(analysis::BuildReport(run.job, input)), emit);
}

std::vector<tables::Table> KnownTables() {
  std::vector<tables::Table> known = tables::RecordTables();
  tables::Widen(tables::StepRow({}, {}), known);
  return known;
}

// The model goes before the records are read: it may be large.
template <typename Target>
absl::Status FillRows(const char* command, const GivenRun& given, std::unique_ptr<ReplayedRun> run,
                      Target& target) {
  const auto insert = [&](const std::string& row) { target.Insert(row); };
  ForEachReportRow(*run, insert);
  const tables::PlacedWork placed(run->job);
  run.reset();
  return ForEachRecordRow(
      command, given, [] { return true; }, insert, &placed);
}

template <typename Target>
absl::StatusOr<bool> FillTables(const char* command, const GivenRun& given, const StepMarkerOption& marker,
                                Target& target, Rows rows) {
  // The report first: it reports damage, and fails if the path is not a run directory.
  auto run = std::make_unique<ReplayedRun>();
  run->job.KeepPlaced();
  if (absl::Status s = ReplayWithSteps(command, given, marker, *run); !s.ok()) return s;
  std::vector<tables::Table> known = KnownTables();
  ForEachReportRow(*run, [&](const std::string& row) { tables::Widen(row, known); });
  for (const tables::Table& table : known) target.AddTable(table);
  const bool whole = run->whole;
  if (rows == Rows::kAll) {
    if (absl::Status s = FillRows(command, given, std::move(run), target); !s.ok()) return s;
  }
  if (absl::Status s = target.Finish(); !s.ok()) return s;
  return whole;
}

template absl::StatusOr<bool> FillTables(const char*, const GivenRun&, const StepMarkerOption&,
                                         tables::Database&, Rows);
template absl::StatusOr<bool> FillTables(const char*, const GivenRun&, const StepMarkerOption&,
                                         tables::CsvFiles&, Rows);

}  // namespace gpuprobe::cli
