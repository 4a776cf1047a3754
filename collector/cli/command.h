// The table of subcommands: dispatch, help and error messages derive from it.
//
// A subcommand is one function that gets its arguments (without its own name) and returns the program's exit
// code: 0 done, 1 it could not be done, 2 it was called wrongly. `run` returns what its command returned.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace gpuprobe::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* summary;
  int (*main)(const Arguments& arguments);
};

std::span<const Command> Commands();

#define COMMAND(name, summary, main) int main(const Arguments& arguments);
#include "collector/cli/commands.inc"
#undef COMMAND

// Parses. Prints an error as one line on stderr, or the help on stdout, and then returns the exit code;
// nullopt: go on.
std::optional<int> Parse(CLI::App& app, const Arguments& arguments);
// Shows the parser of every subcommand to `view`; none of them runs. For completions and manual pages.
void ViewParsers(const std::function<void(const Command& command, CLI::App& app)>& view);
// Reports which of the arguments that `app` did not take is unknown, with a suggestion. Returns kUsage.
int RefuseArgument(const CLI::App& app, const std::vector<std::string>& remaining);

// Prints "gpuprobe: ..." on stderr, without terminal control sequences: file and program names may be another
// user's.
void SayError(std::string_view line);
// "gpuprobe: collect: ..." on stderr. Returns `code`.
int Fail(const std::string& command, const std::string& what, int code);
int Fail(const std::string& command, const absl::Status& status, int code);

}  // namespace gpuprobe::cli
