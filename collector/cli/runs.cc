#include <unistd.h>

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/live_run.h"
#include "collector/cli/output.h"
#include "collector/cli/recorded_runs.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/render/json_text.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {

int RunsMain(const Arguments& arguments) {
  CLI::App app("Lists the runs that were recorded in a folder, the newest first", "gpuprobe runs");
  std::string folder = kRuns;
  bool json = false;
  ColorOption color;
  app.add_option("FOLDER", folder, absl::StrCat("folder with run directories [", kRuns, "]"))
      ->check(NotEmpty());
  app.add_flag("--json", json, "print JSON for tools");
  color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  const std::vector<std::string> found = RunsIn(folder);
  if (found.empty()) return Fail("runs", absl::StrCat("there is no run in ", folder), kFailed);
  std::vector<RunSummary> runs;
  runs.reserve(found.size());
  for (const std::string& directory : found) runs.push_back(SummaryOf(directory));
  if (json) {
    Print(text::PrintableLines(text::SafeJson(render::JsonText(RunsJson(runs)) + "\n")));
  } else {
    PrintForPeople(RunsText(runs, ScreenOf(STDOUT_FILENO, color.no_color)));
  }
  return kDone;
}

}  // namespace gpuprobe::cli
