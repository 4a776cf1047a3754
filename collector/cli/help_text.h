// The text of `gpuprobe --help` and the table of environment variables, both made from the tables that the
// code uses.
#pragma once

#include <string>

namespace gpuprobe::cli {

// The few commands that people need; `gpuprobe` without arguments prints them.
std::string ShortHelpText();
std::string HelpText();
// proto/settings.h as text for a terminal, or as rows of a Markdown table.
std::string EnvironmentText();
std::string EnvironmentMarkdown();
std::string FindingsText();

}  // namespace gpuprobe::cli
