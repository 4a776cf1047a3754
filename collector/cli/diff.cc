#include <unistd.h>

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/comparison/comparison.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/cli/given_run.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/page/page.h"
#include "collector/recording/recorder.h"
#include "collector/recording/version.h"
#include "collector/render/comparison.h"
#include "collector/store/run_directory.h"

namespace gpuprobe::cli {
namespace {

constexpr char kDiff[] = "diff";
constexpr int kLonger = 3;  // exit status

absl::StatusOr<analysis::Run> RunOf(const GivenRun& given, model::JobModel& job) {
  StepMarkerOption marker;
  marker.TakeFrom(given.directory());
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

// What --fail-above asks for. `percent`: by which B's mean step may be longer than A's.
int Judge(const analysis::Comparison& comparison, double percent) {
  if (comparison.parts.empty())
    return Fail(kDiff, "--fail-above: the runs have no steps that could be compared", kFailed);
  const analysis::ComparedPart& total = comparison.parts.front();
  const double longer = total.b.mean / total.a.mean - 1;
  if (!total.significant || longer * 100 <= percent) return kDone;
  SayError(absl::StrFormat("%s: --fail-above %g: steps take %.3g %% longer, beyond chance", kDiff, percent,
                           longer * 100));
  return kLonger;
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
  bool html = false;
  std::optional<double> fail_above;
  app.add_option("A", a, "run directory, or URL of a served run: before")->required();
  app.add_option("B", b, "run directory, or URL of a served run: after")->required();
  app.add_flag("--json", json, "print JSON for tools");
  app.add_flag("--html", html, "print one self-contained HTML page with both runs")->excludes("--json");
  app.add_option("--fail-above", fail_above,
                 "return 3 if steps take more than so many percent longer in B, and that is more than chance")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("PERCENT");
  HubOption hub;
  hub.AddTo(app);
  ColorOption color;
  color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;

  for (std::string* run : {&a, &b}) {
    if (absl::Status s = hub.Resolve(*run); !s.ok()) return Fail(kDiff, s, kFailed);
  }
  const absl::StatusOr<GivenRun> given_a = GivenRun::Open(a);
  if (!given_a.ok()) return Fail(kDiff, given_a.status(), kFailed);
  const absl::StatusOr<GivenRun> given_b = GivenRun::Open(b);
  if (!given_b.ok()) return Fail(kDiff, given_b.status(), kFailed);
  const Progress progress({given_a->directory(), given_b->directory()});
  model::JobModel job_a;
  model::JobModel job_b;
  const absl::StatusOr<analysis::Run> before = RunOf(*given_a, job_a);
  if (!before.ok()) return Fail(kDiff, before.status(), kFailed);
  const absl::StatusOr<analysis::Run> after = RunOf(*given_b, job_b);
  if (!after.ok()) return Fail(kDiff, after.status(), kFailed);
  const analysis::Comparison comparison = analysis::Compare(*before, *after);
  const std::string text =
      json ? render::ComparisonJson(comparison, a, b)
      : html
          ? page::ComparisonPage({.name = a, .job = job_a, .report = before->report},
                                 {.name = b, .job = job_b, .report = after->report}, comparison)
          : render::ComparisonText(comparison, a, b, render::Layout(ScreenOf(STDOUT_FILENO, color.no_color)));
  PrintForPeople(text);
  return fail_above.has_value() ? Judge(comparison, *fail_above) : kDone;
}

}  // namespace gpuprobe::cli
