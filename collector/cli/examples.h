// Examples at the end of `gpuprobe SUBCOMMAND --help` and of its manual page. e2e.help_examples runs every
// one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpuprobe::cli {

struct Example {
  const char* command;  // the subcommand that shows it
  const char* line;     // as typed; DIR is a run directory, PID a process
  const char* meaning;
};

std::vector<Example> ExamplesOf(std::string_view command);
// "Examples:" and the lines, each under its meaning; empty if there are none.
std::string ExamplesText(std::string_view command);

}  // namespace gpuprobe::cli
