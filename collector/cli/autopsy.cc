#include <filesystem>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/autopsy_screen.h"
#include "collector/cli/command.h"
#include "collector/cli/given_run.h"
#include "collector/cli/output.h"
#include "collector/http/fetch.h"
#include "collector/recording/last_moments.h"
#include "collector/render/json_text.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

constexpr char kAutopsy[] = "autopsy";

}  // namespace

int AutopsyMain(const Arguments& arguments) {
  CLI::App app(
      "Shows what the processes of a run did last, from their flight recorders: the last call into NCCL and "
      "whether it returned, open ranges, the line of Python, launches and failures. It needs no collector: "
      "also where that was killed, and while the run goes on. Who is furthest behind comes first.",
      "gpuprobe autopsy");
  std::string directory;
  bool json = false;
  app.add_option("DIR", directory, "run directory [the newest run under gpuprobe-runs]");
  app.add_flag("--json", json, "print JSON for tools");
  if (const auto code = Parse(app, arguments)) return *code;
  if (http::IsUrl(directory))
    return Fail(kAutopsy,
                absl::StrCat(
                    directory,
                    " is a URL; flight recorders are read from a run directory on the host that recorded it"),
                kUsage);
  const absl::StatusOr<GivenRun> run = GivenRun::Open(directory);
  if (!run.ok()) return Fail(kAutopsy, run.status(), kFailed);
  std::error_code error;
  if (!std::filesystem::is_directory(run->directory(), error))
    return Fail(kAutopsy, absl::StrCat(run->name(), " is not a directory; give a run directory"), kFailed);
  std::vector<analysis::LastMoments> all =
      recording::LastMomentsIn(run->directory(), recording::Missing::kName);
  if (all.empty())
    return Fail(kAutopsy,
                absl::StrCat("no process of ", run->name(),
                             " left a flight recorder: each ended in order, or it was recorded by a release "
                             "without one; see gpuprobe report"),
                kFailed);
  SortByProgress(all);
  if (json) {
    Print(text::PrintableLines(text::SafeJson(render::JsonText(AutopsyJson(all)) + "\n")));
  } else {
    PrintForPeople(AutopsyText(all));
  }
  return kDone;
}

}  // namespace gpuprobe::cli
