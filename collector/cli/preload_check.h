// Finds out, from the files that a command executes, whether a preloaded library would keep it from starting.
//
// Examples:
//   CheckPreload({"./train_asan"}): AddressSanitizer, whose runtime refuses to come second.
//   CheckPreload({"mpirun", "-n", "4", "./train_asan"}): the same; paths of programs as arguments count.
//   CheckPreload({"./script.sh"}): the script's interpreter; the programs that it starts cannot be seen.
//
// The files are untrusted: reads are bounded, and a file that cannot be parsed counts as no obstacle.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpuprobe::cli {

enum class PreloadObstacle {
  kSanitizer,  // a sanitizer's shared runtime, which must be the first library: the program would not start
  kMusl,       // another C library than ours: the program would not start
  kArchitecture,  // the loader complains on standard error and goes on without us
  kPrivileges,    // set-user-ID, set-group-ID or file capabilities: the loader ignores us
};

struct PreloadFinding {
  PreloadObstacle obstacle;
  std::string program;  // the file
  std::string detail;   // of a sanitizer: its name
};

// The files that executing the words goes through, as execvp finds them: a script, its interpreter, and the
// program at the end. `env` counts as the program that it executes. Empty: there is no such program.
std::vector<std::string> FilesExecuted(const std::vector<std::string>& command);

// The sanitizer whose shared runtime a library is, which must be the first; empty: none.
std::string_view SanitizerOf(std::string_view library);

std::optional<PreloadFinding> CheckPreload(const std::vector<std::string>& command);

// One sentence that names the obstacle and the remedy, without a newline.
std::string PreloadLine(const PreloadFinding& finding);

}  // namespace gpuprobe::cli
