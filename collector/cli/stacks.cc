#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/live_run.h"
#include "collector/cli/output.h"
#include "collector/cli/ranks_beside.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/stacks_screen.h"
#include "collector/render/json_text.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

constexpr char kStacks[] = "stacks";

struct StacksOptions {
  std::vector<std::string> targets;
  bool native = false;
  bool all_ranks = false;
  bool all_threads = false;
  bool json = false;
  ColorOption color;
};

struct Target {
  pid_t pid = 0;
  std::string label;
};

struct Targets {
  std::vector<Target> here;
  std::vector<std::string> elsewhere;  // "rank 8 on node2"
};

std::string OwnHost() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

absl::StatusOr<Targets> RanksOf(const std::string& directory) {
  const absl::StatusOr<analysis::LiveStatus> status = LiveRun(directory).Look();
  if (absl::IsNotFound(status.status())) return WhyNotLive(directory);
  if (!status.ok()) return status.status();
  Targets targets;
  for (const analysis::LiveRank& rank : status->ranks) {
    const std::string label = rank.rank.has_value() ? absl::StrCat("rank ", rank.label) : "";
    if (rank.host == OwnHost()) {
      targets.here.push_back({.pid = rank.pid, .label = label});
    } else {
      targets.elsewhere.push_back(absl::StrCat(label.empty() ? rank.label : label, " on ", rank.host));
    }
  }
  return targets;
}

absl::StatusOr<Targets> RanksBesideProcess(pid_t pid) {
  const absl::StatusOr<std::vector<RankBeside>> ranks = RanksBeside(pid);
  if (!ranks.ok()) return ranks.status();
  Targets targets;
  for (const RankBeside& rank : *ranks)
    targets.here.push_back({.pid = rank.pid, .label = absl::StrCat("rank ", rank.rank)});
  return targets;
}

// `all_ranks`: for a process those of its job.
absl::StatusOr<Targets> FindTargets(const std::vector<std::string>& names, bool all_ranks) {
  if (names.empty()) {
    const std::string run = NewestLiveRun();
    if (run.empty()) {
      return absl::NotFoundError(
          absl::StrCat("no run is being recorded under ", kRuns, "; name a process id or a run directory"));
    }
    return RanksOf(run);
  }
  Targets all;
  for (const std::string& name : names) {
    int32_t pid = 0;
    const bool is_process = absl::SimpleAtoi(name, &pid) && pid > 0;
    if (is_process && !all_ranks) {
      all.here.push_back({.pid = pid, .label = ""});
      continue;
    }
    absl::StatusOr<Targets> ranks = is_process ? RanksBesideProcess(pid) : RanksOf(name);
    if (!ranks.ok()) return ranks.status();
    all.here.insert(all.here.end(), ranks->here.begin(), ranks->here.end());
    all.elsewhere.insert(all.elsewhere.end(), ranks->elsewhere.begin(), ranks->elsewhere.end());
  }
  return all;
}

}  // namespace

int StacksMain(const Arguments& arguments) {
  CLI::App app(
      "Shows what processes are doing at this moment: each thread's state, system call and Python stack. "
      "Several processes are "
      "grouped by equal stacks, the odd ones first. Nothing is stopped without --native, and the processes "
      "need not run under gpuprobe.",
      "gpuprobe stacks");
  StacksOptions options;
  app.add_option(
         "PID|DIR", options.targets,
         "processes, or the ranks of a run directory [the run under gpuprobe-runs that is being recorded]")
      ->check(NotEmpty());
  app.add_flag("--native", options.native,
               "functions of C and C++, too, with file and line where there is debug information; stops each "
               "thread, most often for less than a millisecond, and says for how long");
  app.add_flag("--all-ranks", options.all_ranks,
               "of a process: all ranks of its job on this host, as its launcher numbered them");
  app.add_flag("--all-threads", options.all_threads,
               "of several processes: all threads that run Python (with --native, all threads), not only the "
               "main ones");
  app.add_flag("--json", options.json, "print JSON for tools");
  options.color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  const absl::StatusOr<Targets> targets = FindTargets(options.targets, options.all_ranks);
  if (!targets.ok()) return Fail(kStacks, targets.status(), kFailed);
  std::vector<LabelledStacks> processes;
  std::vector<std::string> ended;
  const bool main_only = targets->here.size() > 1 && !options.all_threads;
  const observe::Native native = !options.native ? observe::Native::kNone
                                 : main_only     ? observe::Native::kMainThread
                                                 : observe::Native::kAllThreads;
  for (const Target& target : targets->here) {
    LabelledStacks stacks{.label = target.label, .process = observe::ReadStacks(target.pid, native)};
    if (stacks.process.unreadable == stacks::Unreadable::kNoProcess) {
      ended.push_back(target.label.empty() ? absl::StrCat(target.pid)
                                           : absl::StrCat(target.label, " (pid ", target.pid, ")"));
    } else {
      processes.push_back(std::move(stacks));
    }
  }
  if (!targets->elsewhere.empty()) {
    SayError(absl::StrCat(kStacks, ": not on this host: ", absl::StrJoin(targets->elsewhere, ", "),
                          "; run gpuprobe stacks there"));
  }
  if (!ended.empty()) SayError(absl::StrCat(kStacks, ": there is no process ", absl::StrJoin(ended, ", ")));
  if (processes.empty())
    return ended.empty() ? Fail(kStacks, "the run has no process on this host", kFailed) : kFailed;
  if (options.json) {
    Print(text::PrintableLines(text::SafeJson(render::JsonText(StacksJson(processes)) + "\n")));
  } else {
    PrintForPeople(
        StacksText(processes, options.all_threads, ScreenOf(STDOUT_FILENO, options.color.no_color)));
  }
  return ended.empty() ? kDone : kFailed;
}

}  // namespace gpuprobe::cli
