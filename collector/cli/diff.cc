#include <unistd.h>

#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/comparison/comparison.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/cli/given_run.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/recording/recorder.h"
#include "collector/recording/version.h"
#include "collector/render/comparison.h"
#include "collector/store/run_directory.h"

namespace gpuprobe::cli {
namespace {

constexpr char kDiff[] = "diff";

absl::StatusOr<analysis::Run> RunOf(const GivenRun& given) {
  StepMarkerOption marker;
  marker.TakeFrom(given.directory());
  model::JobModel job;
  job.SetStepMarker(marker.marker);
  const absl::StatusOr<store::Replayed> replayed = store::Replay(given.directory(), job);
  if (!replayed.ok()) return replayed.status();
  for (const store::Damage& damage : replayed->damages)
    Fail(kDiff, absl::StrCat(given.name(), ": ", DamageLine(damage)), kFailed);
  analysis::ReportInput input;
  input.collector_version = recording::Version();
  input.all_kernels = true;
  analysis::Run run{.report = analysis::BuildReport(job, input), .series = {}};
  run.series = analysis::SeriesOf(job, run.report);
  return run;
}

}  // namespace

int DiffMain(const Arguments& arguments) {
  CLI::App app(
      "Compares two recorded runs: which rank, kernel or collective changed, by how much, and whether the "
      "change is more than chance",
      "gpuprobe diff");
  std::string a;
  std::string b;
  bool json = false;
  app.add_option("A", a, "run directory, or URL of a served run: before")->required();
  app.add_option("B", b, "run directory, or URL of a served run: after")->required();
  app.add_flag("--json", json, "print JSON for tools");
  ColorOption color;
  color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;

  const absl::StatusOr<GivenRun> given_a = GivenRun::Open(a);
  if (!given_a.ok()) return Fail(kDiff, given_a.status(), kFailed);
  const absl::StatusOr<GivenRun> given_b = GivenRun::Open(b);
  if (!given_b.ok()) return Fail(kDiff, given_b.status(), kFailed);
  const Progress progress({given_a->directory(), given_b->directory()});
  const absl::StatusOr<analysis::Run> before = RunOf(*given_a);
  if (!before.ok()) return Fail(kDiff, before.status(), kFailed);
  const absl::StatusOr<analysis::Run> after = RunOf(*given_b);
  if (!after.ok()) return Fail(kDiff, after.status(), kFailed);
  const analysis::Comparison comparison = analysis::Compare(*before, *after);
  const std::string text =
      json
          ? render::ComparisonJson(comparison, a, b)
          : render::ComparisonText(comparison, a, b, render::Layout(ScreenOf(STDOUT_FILENO, color.no_color)));
  PrintForPeople(text);
  return kDone;
}

}  // namespace gpuprobe::cli
