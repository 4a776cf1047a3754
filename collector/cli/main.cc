#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/cli/command.h"
#include "collector/cli/help_text.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "google/protobuf/stubs/logging.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

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
      {"query", "answer a question about a run in SQL", QueryMain},
      {"simulate", "simulate a job and feed its records to a collector", SimulateMain},
      {"help",
       "show this help; also: help SUBCOMMAND, help environment (GPUPROBE_* variables), help findings (what "
       "is reported, and when)",
       HelpMain},
      {"version", "print the version", VersionMain},
  };
  return kCommands;
}

int Fail(const std::string& command, const std::string& what, int code) {
  std::fprintf(stderr, "gpuprobe: %s: %s\n", command.c_str(), what.c_str());
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

namespace {

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  return names;
}

// A program that could be run: a file that may be executed, named by its path or found through PATH.
bool IsProgram(const std::string& word) {
  std::error_code error;
  if (word.find('/') != std::string::npos)
    return std::filesystem::is_regular_file(word, error) && access(word.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  for (const std::string& folder :
       std::vector<std::string>(absl::StrSplit(path != nullptr ? path : "", ':', absl::SkipEmpty()))) {
    if (access(absl::StrCat(folder, "/", word).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The first argument is not a subcommand: suggests the one that was probably meant.
int RefuseCommand(const Arguments& arguments) {
  const std::string& first = arguments.front();
  const bool option = first.starts_with("-");
  std::vector<std::string> names = CommandNames();
  if (option) names = {"--help", "--version"};
  std::string hint = DidYouMean(first, names);
  std::error_code error;
  if (first == "--") {
    hint = "; did you mean gpuprobe run -- COMMAND?";
  } else if (hint.empty() && option) {
    hint = "; options follow a subcommand: gpuprobe run [OPTIONS] -- COMMAND";
  } else if (hint.empty() && std::filesystem::is_directory(first, error)) {
    hint = absl::StrCat("; did you mean gpuprobe report ", first, "?");
  } else if (hint.empty() && IsProgram(first)) {
    hint = absl::StrCat("; did you mean gpuprobe run -- ", first, "?");
  } else if (hint.empty()) {
    hint = absl::StrCat("; available: ", absl::StrJoin(names, ", "));
  }
  std::fprintf(stderr, "gpuprobe: unknown %s \"%s\"%s (see gpuprobe --help)\n",
               option ? "option" : "subcommand", first.c_str(), hint.c_str());
  return kUsage;
}

int Dispatch(const Arguments& arguments) {
  const std::string& first = arguments.front();
  if (first == "--version" || first == "-V") return VersionMain({});
  if (first == "--help" || first == "-h") {
    Print(HelpText());
    return kDone;
  }
  for (const Command& command : Commands()) {
    if (first == command.name) return command.main(Arguments(arguments.begin() + 1, arguments.end()));
  }
  return RefuseCommand(arguments);
}

int Main(const Arguments& arguments) {
  HoldStandardStreams();
  if (arguments.empty()) {
    std::fputs(HelpText().c_str(), stderr);
    return kUsage;
  }
  return FinishOutput(arguments.front(), Dispatch(arguments));
}

}  // namespace

}  // namespace gpuprobe::cli

int main(int argc, char** argv) {
  auto logger = spdlog::stderr_logger_st("gpuprobe");
  logger->set_pattern("gpuprobe: %v");
  spdlog::set_default_logger(logger);
  // Arguments that do not parse are reported by whoever tried to parse them.
  google::protobuf::SetLogHandler(nullptr);
  try {
    return gpuprobe::cli::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory, mostly: our own code reports by Status
    std::fprintf(stderr, "gpuprobe: %s\n", error.what());
    return gpuprobe::cli::kFailed;
  }
}
