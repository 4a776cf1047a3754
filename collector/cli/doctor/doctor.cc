#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/doctor/checks.h"
#include "collector/cli/doctor/gather.h"
#include "collector/cli/doctor/screen.h"
#include "collector/cli/output.h"
#include "collector/cli/process_stat.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/render/json_text.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

constexpr char kDoctor[] = "doctor";

}  // namespace

int DoctorMain(const Arguments& arguments) {
  CLI::App app(
      "Says before a job starts what will be recorded of it and what stands in the way, each with a remedy; "
      "or, of a "
      "process that runs, what is recorded and what can still be seen. Nothing is changed, and CUDA is not "
      "started. "
      "Exit status: 0 if nothing is worse than a note, 1 if there is a warning or a problem.",
      "gpuprobe doctor");
  int pid = 0;
  std::string out;
  bool json = false;
  ColorOption color;
  app.add_option("PID", pid, "a process that runs, instead of a command")->check(WholeNumber(1, INT32_MAX));
  app.add_option("--out", out, "run directory of the job [gpuprobe-runs]")->check(NotEmpty());
  app.add_flag("--json", json, "print JSON for tools");
  color.AddTo(app);
  app.footer("  gpuprobe doctor [OPTIONS] [-- COMMAND [ARGUMENTS] | PID]");
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (const auto code = Parse(app, Arguments(arguments.begin(), dashes))) return *code;
  const Arguments command(dashes == arguments.end() ? dashes : dashes + 1, arguments.end());
  if (dashes != arguments.end() && command.empty())
    return Fail(kDoctor, "no command behind --: gpuprobe doctor [OPTIONS] -- COMMAND [ARGUMENTS]", kUsage);
  if (pid != 0 && (!command.empty() || !out.empty()))
    return Fail(kDoctor, "a process that runs has its command and its run directory: give PID alone", kUsage);
  if (pid != 0 && StatOf(pid).state == '?')
    return Fail(kDoctor, absl::StrCat("there is no process ", pid), kFailed);
  const doctor::Checks checks = doctor::Diagnose([&] {
    doctor::Facts facts = pid != 0 ? doctor::GatherForProcess(pid) : doctor::GatherForCommand(command, out);
    facts.keep_bytes = KeepOption::kDefaultBytes;
    return facts;
  }());
  if (json) {
    Print(text::PrintableLines(text::SafeJson(render::JsonText(doctor::Json(checks)) + "\n")));
  } else {
    PrintForPeople(doctor::Text(checks, ScreenOf(STDOUT_FILENO, color.no_color)));
  }
  return doctor::NeedsAttention(checks) ? kFailed : kDone;
}

}  // namespace gpuprobe::cli
