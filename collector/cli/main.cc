#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/cli/command.h"
#include "collector/cli/help_text.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "collector/cli/wrapped_help.h"
#include "google/protobuf/stubs/logging.h"

namespace gpuprobe::cli {

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
  SayError(absl::StrCat("unknown ", option ? "option" : "subcommand", " \"", first, "\"", hint,
                        " (see gpuprobe --help)"));
  return kUsage;
}

int Dispatch(const Arguments& arguments) {
  const std::string& first = arguments.front();
  if (first == "--version" || first == "-V") return VersionMain({});
  if (first == "--help" || first == "-h") {
    Print(WrappedFor(STDOUT_FILENO, HelpText()));
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
    std::fputs(WrappedFor(STDERR_FILENO, ShortHelpText()).c_str(), stderr);
    return kUsage;
  }
  return FinishOutput(arguments.front(), Dispatch(arguments));
}

}  // namespace

}  // namespace gpuprobe::cli

int main(int argc, char** argv) {
  // The code that parses a message reports its errors itself.
  google::protobuf::SetLogHandler(nullptr);
  try {
    return gpuprobe::cli::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory, mostly: our own code reports by Status
    std::fprintf(stderr, "gpuprobe: %s\n", error.what());
    return gpuprobe::cli::kFailed;
  }
}
