#include "collector/recording/several_hosts.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/recording/live_display.h"
#include "collector/recording/rendezvous.h"
#include "collector/render/json_report.h"
#include "collector/store/run_files.h"
#include "proto/launchers.h"

namespace gpuprobe::recording {
namespace {

using Lookup = absl::FunctionRef<const char*(const char* name)>;

// 0: not there, or not a number.
int NumberOf(const char* text) {
  int number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : 0;
}

// "--nnodes=2", "--nnodes 1:4" (torchrun: at least 1, at most 4).
bool AsksForHosts(const std::vector<std::string>& command) {
  constexpr std::array kOptions = {"--nnodes", "--num_machines", "--num_nodes", "--num-nodes"};
  for (size_t i = 0; i < command.size(); ++i) {
    std::pair<std::string, std::string> option = absl::StrSplit(command[i], absl::MaxSplits('=', 1));
    if (std::find(kOptions.begin(), kOptions.end(), option.first) == kOptions.end()) continue;
    if (command[i] == option.first && i + 1 < command.size()) option.second = command[i + 1];
    const std::vector<std::string> bounds = absl::StrSplit(option.second, ':');
    if (NumberOf(bounds.back().c_str()) > 1) return true;
  }
  return false;
}

}  // namespace

bool SpansHosts(const std::vector<std::string>& command, Lookup variable) {
  if (AsksForHosts(command)) return true;
  const char* hub = variable(kHubVariable);
  if (hub != nullptr && *hub != '\0' && std::string_view(hub) != "off" &&
      NumberOf(variable("WORLD_SIZE")) > 1)
    return true;
  for (const launchers::Launcher* launcher :
       {&launchers::kTorchrun, &launchers::kOpenMpi, &launchers::kPmi}) {
    const int here = NumberOf(variable(launcher->local_size));
    if (here > 0 && NumberOf(variable(launcher->world_size)) > here) return true;
  }
  // A batch script of several nodes runs on the first; only what srun starts is on all of them.
  return variable(launchers::kSlurm.local_size) != nullptr && NumberOf(variable("SLURM_STEP_NUM_NODES")) > 1;
}

std::string HostOfRankZero(const std::string& out) {
  const absl::StatusOr<store::RunFiles> files = store::ListRun(out, store::Dropped::kAllow);
  if (!files.ok()) return "";
  for (const std::string& host : files->hosts) {
    const std::string folder = absl::StrCat(out, "/", host);
    std::error_code error;
    if (!IsLive(folder) && !std::filesystem::exists(folder + "/" + render::kReportFile, error)) continue;
    for (const store::Segment& segment : files->segments) {
      if (segment.log == host + "/rank-0") return host;
    }
  }
  return "";
}

std::string NameOfThisHost() {
  utsname names{};
  std::string host = uname(&names) == 0 ? names.nodename : "";
  std::replace(host.begin(), host.end(), '/', '_');
  if (host.empty() || host.front() == '.') host.insert(0, "host-");
  return host;
}

std::string FolderOfThisHost(const std::string& out) { return absl::StrCat(out, "/", NameOfThisHost()); }

}  // namespace gpuprobe::recording
