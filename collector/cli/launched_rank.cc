#include "collector/cli/launched_rank.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/cli/process_stat.h"
#include "collector/observe/process_start.h"
#include "proto/launchers.h"

namespace gpuprobe::cli {
namespace {

using launchers::Launcher;
using Lookup = absl::FunctionRef<const char*(const char* name)>;

// From the inside out: torchrun may be what srun starts.
constexpr std::array kInsideOut = {&launchers::kTorchrun, &launchers::kOpenMpi, &launchers::kPmi,
                                   &launchers::kSlurm, &launchers::kPmix};

std::string_view Text(Lookup variable, const char* name) {
  const char* text = name == nullptr ? nullptr : variable(name);
  return text == nullptr ? "" : text;
}

// A number from 0 on, or -1.
int32_t Number(std::string_view text) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? number : -1;
}

// How many ranks the launcher started on this host; 0: not known.
int32_t RanksHere(Lookup variable, const Launcher& launcher) {
  if (Number(Text(variable, launcher.world_size)) == 1) return 1;
  const std::string_view here = Text(variable, launcher.local_size);
  if (&launcher == &launchers::kSlurm)
    return here.empty() ? 1 : TasksOnNode(std::string(here), Number(Text(variable, "SLURM_NODEID")));
  const int32_t ranks = Number(here);
  return ranks > 0 ? ranks : 0;
}

// The nearest ancestor that does not have our rank, or that we may not inspect because it is another user's.
pid_t FindLauncher(const char* variable, const char* value) {
  pid_t pid = getppid();
  while (pid > 1 && HasVariable(pid, variable, value)) pid = StatOf(pid).parent;
  return pid;
}

std::string JobOfLauncher(pid_t launcher, const char* variable) {
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof(host) - 1);
  char pids[64] = "";
  (void)!readlink("/proc/self/ns/pid", pids, sizeof(pids) - 1);
  return absl::StrCat(host, " ", pids, " ", launcher, "@", StatOf(launcher).start_ticks, " ", variable);
}

}  // namespace

bool HasVariable(pid_t pid, const std::string& name, const std::string& value) {
  const std::map<std::string, std::string> variables = observe::VariablesOf(pid);
  const auto found = variables.find(name);
  return found != variables.end() && found->second == value;
}

int32_t TasksOnNode(const std::string& tasks_per_node, int32_t node) {
  for (std::string part : std::vector<std::string>(absl::StrSplit(tasks_per_node, ','))) {
    int32_t nodes = 1;
    if (const size_t times = part.find("(x"); times != std::string::npos && part.ends_with(')')) {
      nodes = Number(std::string_view(part).substr(times + 2, part.size() - times - 3));
      part.resize(times);
    }
    if (node >= 0 && node < nodes) return std::max(0, Number(part));
    node -= std::max(0, nodes);
  }
  return 0;
}

std::optional<LaunchedRank> RankOfVariables(Lookup variable) {
  std::optional<LaunchedRank> found;
  for (const Launcher* launcher : kInsideOut) {
    const int32_t rank = Number(Text(variable, launcher->rank));
    const int32_t ranks_here = rank < 0 ? 1 : RanksHere(variable, *launcher);
    if (ranks_here == 1 || (ranks_here == 0 && found.has_value())) continue;
    found = LaunchedRank{.rank = rank, .ranks_here = ranks_here, .variable = launcher->rank, .job = ""};
    if (ranks_here > 1) break;
  }
  return found;
}

std::optional<LaunchedRank> FindLaunchedRank() {
  std::optional<LaunchedRank> found = RankOfVariables([](const char* name) { return std::getenv(name); });
  if (!found.has_value()) return found;
  found->job = JobOfLauncher(FindLauncher(found->variable, std::getenv(found->variable)), found->variable);
  return found;
}

}  // namespace gpuprobe::cli
