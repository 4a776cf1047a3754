#include "collector/cli/ranks_beside.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/launched_rank.h"
#include "collector/cli/process_stat.h"
#include "collector/observe/process_start.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

std::optional<LaunchedRank> RankOf(pid_t pid) {
  const std::map<std::string, std::string> variables = observe::VariablesOf(pid);
  return RankOfVariables([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Where a process stands among those that its launcher started.
struct Place {
  pid_t launcher = 0;
  int depth = 0;
  std::string program;
  bool operator==(const Place&) const = default;
};

Place PlaceOf(pid_t pid, const LaunchedRank& rank) {
  std::error_code error;
  Place place{.launcher = pid,
              .program = fs::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error).string()};
  const std::string number = absl::StrCat(rank.rank);
  do {
    place.launcher = StatOf(place.launcher).parent;
    ++place.depth;
  } while (place.launcher > 1 && HasVariable(place.launcher, rank.variable, number));
  return place;
}

}  // namespace

std::optional<int32_t> RankOfProcess(pid_t pid) {
  const std::optional<LaunchedRank> rank = RankOf(pid);
  return rank.has_value() ? std::optional(rank->rank) : std::nullopt;
}

absl::StatusOr<std::vector<RankBeside>> RanksBeside(pid_t pid) {
  if (StatOf(pid).state == '?') return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  const std::optional<LaunchedRank> own = RankOf(pid);
  if (!own.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "process ", pid,
        " is no rank of a job on this host, or may not be read: no launcher's variable "
        "(RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID ...) says so in its environment; name the processes"));
  }
  const Place place = PlaceOf(pid, *own);
  std::vector<RankBeside> ranks;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    RankBeside other;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &other.pid)) continue;
    const std::optional<LaunchedRank> rank = RankOf(other.pid);
    if (!rank.has_value() || rank->variable != own->variable || PlaceOf(other.pid, *rank) != place) continue;
    other.rank = rank->rank;
    ranks.push_back(other);
  }
  std::sort(ranks.begin(), ranks.end(), [](const RankBeside& a, const RankBeside& b) {
    return std::tie(a.rank, a.pid) < std::tie(b.rank, b.pid);
  });
  return ranks;
}

}  // namespace gpuprobe::cli
