#include "collector/cli/running_collector.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/cli/attach/target.h"
#include "collector/cli/live_run.h"
#include "collector/ingest/endpoint.h"
#include "collector/observe/process_start.h"
#include "collector/observe/small_file.h"
#include "collector/recording/live_display.h"
#include "collector/store/run_files.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

// Where the descriptors of a process lead: paths, and "socket:[4711]".
std::set<std::string> OpenIn(pid_t pid) {
  std::set<std::string> open;
  for (const pid_t fd : attach::NumbersIn(absl::StrCat("/proc/", pid, "/fd"))) {
    std::error_code error;
    const fs::path to = fs::read_symlink(absl::StrCat("/proc/", pid, "/fd/", fd), error);
    if (!error) open.insert(to.string());
  }
  return open;
}

// The path of a Unix socket on which one of these descriptors listens; empty: none does.
std::string ListensOn(pid_t pid, const std::set<std::string>& open) {
  constexpr int kFlags = 3;
  constexpr int kInode = 6;
  constexpr int kPath = 7;
  constexpr char kAccepts[] = "00010000";  // __SO_ACCEPTCON
  std::ifstream table(absl::StrCat("/proc/", pid, "/net/unix"));
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    if (fields.size() <= kPath || fields[kFlags] != kAccepts || !fields[kPath].starts_with('/')) continue;
    if (open.contains(absl::StrCat("socket:[", fields[kInode], "]"))) return fields[kPath];
  }
  return "";
}

// Where the node's collector listens, whose processes for each user listen nowhere.
std::string NodeSocket() {
  const char* const named = std::getenv("GPUPROBE_SOCKET");
  return named != nullptr && *named != '\0' ? named : ingest::kNodeSocketPath;
}

// Every run that a process of this user records here.
std::vector<RunningCollector> RunningCollectors() {
  std::vector<RunningCollector> found;
  for (const pid_t pid : attach::NumbersIn("/proc")) {
    if (pid == getpid() || observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/comm")) != "gpuprobe\n")
      continue;
    const std::set<std::string> open = OpenIn(pid);
    const std::string socket = ListensOn(pid, open);
    for (const std::string& path : open) {
      if (!path.starts_with('/') || !recording::IsLive(path)) continue;
      found.push_back({.pid = pid, .directory = path, .socket = socket.empty() ? NodeSocket() : socket});
    }
  }
  return found;
}

absl::StatusOr<RunningCollector> OfProcess(pid_t pid, const std::vector<RunningCollector>& running) {
  if (attach::HasEnded(pid)) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  for (const RunningCollector& collector : running) {
    LiveRun run(collector.directory);
    const absl::StatusOr<analysis::LiveStatus> status = run.Look();
    if (!status.ok()) continue;
    const auto& ranks = status->ranks;
    if (std::any_of(ranks.begin(), ranks.end(), [pid](const auto& rank) { return rank.pid == pid; }))
      return collector;
  }
  return absl::NotFoundError(absl::StrCat(
      pid, " is not recorded by a collector of this user; start it under gpuprobe run --level idle"));
}

absl::StatusOr<RunningCollector> OfDirectory(const std::string& given,
                                             const std::vector<RunningCollector>& running) {
  std::error_code error;
  const fs::path directory = fs::canonical(given, error);
  if (error) return absl::NotFoundError(absl::StrCat(given, " is neither a process nor a run directory"));
  for (const RunningCollector& collector : running) {
    const fs::path held(collector.directory);
    if (held == directory || held.parent_path() == directory) return collector;
  }
  const absl::StatusOr<store::RunFiles> files = store::ListRun(given, store::Dropped::kAllow);
  if (!files.ok()) return files.status();
  // A user cannot look into the node collector's processes.
  if (recording::IsLive(directory.string()) && fs::is_socket(NodeSocket(), error))
    return RunningCollector{.pid = 0, .directory = directory.string(), .socket = NodeSocket()};
  if (recording::IsLive(directory.string()))
    return absl::FailedPreconditionError(
        absl::StrCat(given, " is recorded by another user, or on another host; run gpuprobe capture there"));
  return WhyNotLive(given);
}

}  // namespace

absl::StatusOr<RunningCollector> FindRunningCollector(const std::string& given) {
  const std::vector<RunningCollector> running = RunningCollectors();
  pid_t pid = 0;
  if (absl::SimpleAtoi(given, &pid) && pid > 0) return OfProcess(pid, running);
  if (!given.empty()) return OfDirectory(given, running);
  std::optional<RunningCollector> newest;
  fs::file_time_type latest{};
  for (const RunningCollector& collector : running) {
    std::error_code error;
    const fs::file_time_type made =
        fs::last_write_time(fs::path("/proc") / absl::StrCat(collector.pid), error);
    // A hub has several runs, whose names begin with the time.
    if (newest.has_value() && (error || made < latest)) continue;
    latest = made;
    newest = collector;
  }
  if (newest.has_value()) return *newest;
  return absl::NotFoundError(
      "no run of this user is being recorded here; start the job under gpuprobe run --level idle");
}

}  // namespace gpuprobe::cli
