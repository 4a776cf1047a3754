#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/attach/target.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/run_command.h"
#include "collector/observe/process_start.h"
#include "collector/observe/small_file.h"

namespace gpuprobe::cli {
namespace attach {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kDetach[] = "detach";
constexpr milliseconds kWait{15'000};
constexpr milliseconds kReportWait{120'000};  // the report of a long run

// A `gpuprobe attach` that runs.
struct Attacher {
  pid_t pid = 0;
  std::vector<std::string> command;
};

std::vector<Attacher> FindAttachers() {
  std::vector<Attacher> found;
  for (const pid_t pid : NumbersIn("/proc")) {
    if (pid == getpid() || observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/comm")) != "gpuprobe\n")
      continue;
    std::vector<std::string> command = observe::CommandOf(pid);
    if (command.size() > 2 && command[1] == "attach")
      found.push_back({.pid = pid, .command = std::move(command)});
  }
  return found;
}

bool HoldsOpen(pid_t pid, const fs::path& directory) {
  for (const pid_t fd : NumbersIn(absl::StrCat("/proc/", pid, "/fd"))) {
    std::error_code error;
    if (fs::read_symlink(absl::StrCat("/proc/", pid, "/fd/", fd), error) == directory) return true;
  }
  return false;
}

bool AwaitUntil(milliseconds limit, const auto& done) {
  const Clock::time_point until = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

int DetachProcess(pid_t pid) {
  if (HasEnded(pid)) return Fail(kDetach, absl::StrCat("there is no process ", pid), kOwnFailure);
  if (!IsRecorded(pid))
    return Fail(kDetach, absl::StrCat(pid, " is not recorded; nothing to do"), kOwnFailure);
  bool asked = false;
  for (const Attacher& attacher : FindAttachers()) {
    // Who does not record it ignores the number.
    if (std::find(attacher.command.begin(), attacher.command.end(), absl::StrCat(pid)) ==
        attacher.command.end())
      continue;
    asked = sigqueue(attacher.pid, SIGUSR1, sigval{.sival_int = pid}) == 0 || asked;
  }
  if (!asked)
    return Fail(kDetach,
                absl::StrCat(pid,
                             " is recorded since its start, by gpuprobe run or collect, or by an attach of "
                             "another user; only that recording can end it"),
                kOwnFailure);
  if (!AwaitUntil(kWait, [&] { return !IsRecorded(pid); }))
    return Fail(kDetach,
                absl::StrCat(pid, " has not ended its recording within 15 s; see gpuprobe look ", pid),
                kOwnFailure);
  SayError(absl::StrCat("recording of ", pid, " has ended; it goes on"));
  return kDone;
}

int DetachRun(const std::string& given) {
  std::error_code error;
  const fs::path directory = fs::canonical(given, error);
  if (error)
    return Fail(kDetach, absl::StrCat(given, " is neither a process nor a run directory"), kOwnFailure);
  for (const Attacher& attacher : FindAttachers()) {
    if (!HoldsOpen(attacher.pid, directory)) continue;
    if (kill(attacher.pid, SIGINT) != 0)
      return Fail(kDetach, absl::StrCat("its recorder, pid ", attacher.pid, ", is another user's"),
                  kOwnFailure);
    if (!AwaitUntil(kReportWait, [&] { return HasEnded(attacher.pid); }))
      return Fail(kDetach,
                  absl::StrCat("its recorder, pid ", attacher.pid, ", has not ended within 2 minutes"),
                  kOwnFailure);
    SayError(absl::StrCat("recording to ", given, " has ended; read it with: gpuprobe report ", given));
    return kDone;
  }
  return Fail(kDetach, absl::StrCat("no gpuprobe attach records to ", given), kOwnFailure);
}

}  // namespace
}  // namespace attach

int DetachMain(const Arguments& arguments) {
  CLI::App app(
      "Ends a recording that gpuprobe attach began: of one process, or of all that record into a directory. "
      "The "
      "processes go on. The library stays in them, and does nothing any more.",
      "gpuprobe detach");
  std::string what;
  app.add_option("WHAT", what, "a process, or the directory of a run")
      ->check(NotEmpty())
      ->option_text("PID|DIR");
  if (const auto code = Parse(app, arguments)) return *code;
  if (what.empty()) return Fail("detach", "nothing to detach: gpuprobe detach PID|DIR", kUsage);
  pid_t pid = 0;
  return absl::SimpleAtoi(what, &pid) && pid > 0 ? attach::DetachProcess(pid) : attach::DetachRun(what);
}

}  // namespace gpuprobe::cli
