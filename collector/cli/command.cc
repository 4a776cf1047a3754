#include "collector/cli/command.h"

#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/recording/version.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {

std::span<const Command> Commands() {
  static constexpr Command kCommands[] = {
#define COMMAND(name, summary, main) {name, summary, main},
#include "collector/cli/commands.inc"
#undef COMMAND
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
  Print(absl::StrCat("gpuprobe ", recording::Version(), "\n"));
  return kDone;
}

}  // namespace gpuprobe::cli
