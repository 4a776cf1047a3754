#include "collector/recording/launched_job.h"

#include <map>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/hub/secret.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/process_start.h"
#include "collector/observe/small_file.h"
#include "collector/recording/rendezvous.h"
#include "collector/recording/several_hosts.h"

namespace gpuprobe::recording {

LaunchedJob LaunchedJobOf(const v1::Identity& identity, const std::string& hub) {
  if (ParentOf(identity.pid()) == 0) return {};
  const auto pid = static_cast<pid_t>(identity.pid());
  const std::map<std::string, std::string> variables = observe::VariablesOf(pid);
  const std::vector<std::string> command = observe::CommandOf(pid);
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  LaunchedJob job;
  job.spans_hosts = SpansHosts(command, variable);
  // Of several hosts' ranks only: a launcher's own command names the job in another way, and may be seen on
  // some hosts only.
  if (job.spans_hosts && !analysis::HasRank(identity)) return job;
  if (const char* token = variable(hub::Secret::kVariable); token != nullptr) job.token = token;
  // Only what the job itself says can mean that it spans hosts.
  const auto with_hub = [&](const char* name) -> const char* {
    const char* own = variable(name);
    return own == nullptr && !hub.empty() && std::string_view(name) == kHubVariable ? hub.c_str() : own;
  };
  const auto meeting =
      FindMeeting(job.spans_hosts ? std::vector<std::string>() : command, with_hub, job.spans_hosts);
  if (meeting.ok()) job.meeting = *meeting;
  return job;
}

std::string AttemptOf(const v1::Identity& identity) {
  if (ParentOf(identity.pid()) == 0) return "";
  const std::map<std::string, std::string> variables =
      observe::VariablesOf(static_cast<pid_t>(identity.pid()));
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    if (const auto found = variables.find(name); found != variables.end()) return found->second;
  }
  return "";
}

uint32_t ParentOf(uint32_t pid) {
  const std::optional<std::string> text = observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/status"));
  const std::optional<observe::ProcStatus> status =
      text.has_value() ? observe::ParseStatus(*text) : std::nullopt;
  const bool ours = status.has_value() && status->pids.size() == 1 && status->pids.front() == pid;
  return ours ? status->parent : 0;
}

}  // namespace gpuprobe::recording
