#include "collector/cli/command.h"

#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {

std::span<const Command> Commands() {
  static constexpr Command kCommands[] = {
      {"run", "run a command under the probe and report when it ends", RunMain},
      {"collect", "record every process of this user until stopped", CollectMain},
      {"report", "report on a recorded run", ReportMain},
      {"diff", "compare two recorded runs", DiffMain},
      {"top", "show a job while it runs", TopMain},
      {"trace", "write a timeline of a run, for Perfetto or PyTorch's tools", TraceMain},
      {"export", "write the records or tables of a run, for other tools", ExportMain},
      {"query", "answer questions about a run in SQL", QueryMain},
      {"simulate", "simulate a job and feed its records to a collector", SimulateMain},
      {"help",
       "show this help; also: help SUBCOMMAND, help environment (GPUPROBE_* variables), help findings (what "
       "is reported, and when)",
       HelpMain},
      {"version", "print the version", VersionMain},
  };
  return kCommands;
}

void SayError(std::string_view line) {
  Progress::Hide();
  std::fputs(absl::StrCat("gpuprobe: ", text::Printable(line), "\n").c_str(), stderr);
}

int Fail(const std::string& command, const std::string& what, int code) {
  SayError(absl::StrCat(command, ": ", what));
  return code;
}

int Fail(const std::string& command, const absl::Status& status, int code) {
  return Fail(command, std::string(status.message()), code);
}

int VersionMain(const Arguments& arguments) {
  CLI::App app("Prints the version of this program", "gpuprobe version");
  if (const auto code = Parse(app, arguments)) return *code;
  Print(absl::StrCat("gpuprobe ", Version(), "\n"));
  return kDone;
}

}  // namespace gpuprobe::cli
