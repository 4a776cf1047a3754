#include "collector/observe/process_start.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace gpuprobe::observe {

std::map<std::string, std::string> VariablesOf(pid_t pid) {
  std::map<std::string, std::string> variables;
  std::ifstream file(absl::StrCat("/proc/", pid, "/environ"), std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    // Of two of a name, getenv finds the first.
    if (const size_t equals = entry.find('='); equals != std::string::npos)
      variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> CommandOf(pid_t pid) {
  std::vector<std::string> command;
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) command.push_back(word);
  return command;
}

}  // namespace gpuprobe::observe
