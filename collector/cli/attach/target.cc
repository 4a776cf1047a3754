#include "collector/cli/attach/target.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"

namespace gpuprobe::cli::attach {

std::vector<pid_t> NumbersIn(const std::string& folder) {
  std::vector<pid_t> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    pid_t number = 0;
    if (absl::SimpleAtoi(it->path().filename().string(), &number)) numbers.push_back(number);
  }
  return numbers;
}

std::vector<pid_t> ThreadsOf(pid_t pid) { return NumbersIn(absl::StrCat("/proc/", pid, "/task")); }

bool HasEnded(pid_t pid) {
  const std::vector<pid_t> threads = ThreadsOf(pid);
  return std::all_of(threads.begin(), threads.end(), [pid](pid_t tid) {
    const auto stat = observe::ParseStat(
        observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/task/", tid, "/stat")).value_or(""));
    return !stat.has_value() || stat->state == 'Z' || stat->state == 'X';
  });
}

bool IsRecorded(pid_t pid) {
  const std::vector<pid_t> threads = ThreadsOf(pid);
  return std::any_of(threads.begin(), threads.end(), [pid](pid_t tid) {
    return tid != pid &&
           observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/task/", tid, "/comm")) == "gpuprobe\n";
  });
}

}  // namespace gpuprobe::cli::attach
