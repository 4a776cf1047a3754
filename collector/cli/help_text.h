// The text of `gpuprobe --help` and the table of environment variables, both made from the tables that the
// code uses.
#pragma once

#include <string>

#include "proto/settings.h"

namespace gpuprobe::cli {

// The few commands that people need; `gpuprobe` without arguments prints them.
std::string ShortHelpText();
std::string HelpText();
// proto/settings.h as text for a terminal, or as rows of a Markdown table.
std::string EnvironmentText();
std::string EnvironmentMarkdown();
// "10 to 60000 ms", "0 or 1": the values that it takes.
std::string SettingValues(const settings::Setting& setting);
std::string FindingsText();

}  // namespace gpuprobe::cli
