#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/given_run.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/record_rows.h"
#include "collector/cli/run_tables.h"
#include "collector/cli/shared_options.h"
#include "collector/store/safe_path.h"
#include "collector/tables/csv_files.h"
#include "collector/tables/database.h"

namespace gpuprobe::cli {
namespace {

constexpr char kExport[] = "export";

struct ExportOptions {
  std::string given;
  std::string format = "jsonl";
  std::string out;
  StepMarkerOption marker;
};

absl::Status ExportLines(const GivenRun& run) {
  return ForEachRecordRow(kExport, run, OutputWorks, [](const std::string& row) {
    Print(row);
    Print("\n");
  });
}

absl::Status ExportSteps(const ExportOptions& options, const GivenRun& run) {
  ReplayedRun replayed;
  absl::Status status = ReplayWithSteps(kExport, run, options.marker, replayed);
  if (status.ok()) PrintStepTimings(replayed);
  return status;
}

absl::Status ExportDatabase(const ExportOptions& options, const GivenRun& run) {
  const absl::StatusOr<std::string> path = store::PathWithoutLinks(options.out);
  if (!path.ok()) return path.status();
  absl::StatusOr<std::unique_ptr<tables::Database>> database = tables::Database::Create(*path);
  if (!database.ok()) return database.status();
  return FillTables(kExport, run, options.marker, **database).status();
}

absl::Status ExportCsv(const ExportOptions& options, const GivenRun& run) {
  if (absl::Status s = store::MakeOutputFolder(options.out); !s.ok()) return s;
  tables::CsvFiles files(options.out, store::OpenOutputFile);
  return FillTables(kExport, run, options.marker, files).status();
}

}  // namespace

int ExportMain(const Arguments& arguments) {
  CLI::App app("Writes a run for other tools: its records, or tables of records, steps and the report",
               "gpuprobe export");
  ExportOptions options;
  app.add_option("DIR", options.given, kGivenRun);
  const auto* format =
      app.add_option("--format", options.format,
                     "jsonl: every record as a JSON object, one per line; steps: seconds of each step and "
                     "phase, one per "
                     "line; sqlite: a database (docs/sql.md); csv: a folder of tables [jsonl]")
          ->check(OneOf({"jsonl", "steps", "sqlite", "csv"}));
  app.add_option("-o,--out", options.out, "file (sqlite) or folder (csv) to write; the others are printed")
      ->check(NotEmpty());
  HubOption hub;
  hub.AddTo(app);
  options.marker.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  const bool printed = options.format == "jsonl" || options.format == "steps";
  if (printed != options.out.empty()) {
    return Fail(kExport,
                printed
                    ? absl::StrCat("--out: --format ", options.format, " is printed; redirect it into a file")
                    : absl::StrCat("--format ", options.format, " needs --out"),
                kUsage);
  }
  if (format->count() == 0 && isatty(STDOUT_FILENO) != 0) {
    return Fail(kExport, "prints every record, a line each: redirect it into a file, or choose a --format",
                kUsage);
  }
  if (absl::Status s = hub.Resolve(options.given); !s.ok()) return Fail(kExport, s, kFailed);
  const absl::StatusOr<GivenRun> run = GivenRun::Open(options.given);
  if (!run.ok()) return Fail(kExport, run.status(), kFailed);
  options.marker.TakeFrom(run->directory());
  std::optional<Progress> progress;
  // Output on the same terminal shows progress well enough.
  if (!printed || isatty(STDOUT_FILENO) == 0) progress.emplace(std::vector{run->directory()});
  const absl::Status status = options.format == "jsonl"    ? ExportLines(*run)
                              : options.format == "steps"  ? ExportSteps(options, *run)
                              : options.format == "sqlite" ? ExportDatabase(options, *run)
                                                           : ExportCsv(options, *run);
  return status.ok() ? kDone : Fail(kExport, status, kFailed);
}

}  // namespace gpuprobe::cli
