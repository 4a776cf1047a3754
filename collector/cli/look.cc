#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/look_screen.h"
#include "collector/cli/output.h"
#include "collector/cli/process_stat.h"
#include "collector/cli/ranks_beside.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/observe/gpu_processes.h"
#include "collector/observe/gpus_now.h"
#include "collector/render/json_text.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kLook[] = "look";
constexpr std::chrono::milliseconds kPatienceWithDriver{2000};

struct LookOptions {
  std::vector<int> pids;
  double seconds = 1;
  bool native = false;
  bool json = false;
  ColorOption color;
};

using Job = std::vector<RankBeside>;  // rank -1: it is no rank

// Ranks of one launcher together; each process that is no rank by itself.
std::vector<Job> JobsOf(const std::vector<pid_t>& pids) {
  std::vector<Job> jobs;
  std::set<pid_t> seen;
  for (const pid_t pid : pids) {
    if (seen.contains(pid)) continue;
    const absl::StatusOr<Job> ranks = RanksBeside(pid);
    jobs.push_back(ranks.ok() ? *ranks : Job{{.rank = -1, .pid = pid}});
    for (const RankBeside& rank : jobs.back()) seen.insert(rank.pid);
  }
  return jobs;
}

// Launchers that looked for GPUs themselves are no jobs beside that of their ranks.
void DropLaunchers(std::vector<Job>& jobs) {
  std::set<pid_t> launchers;
  for (const Job& job : jobs) {
    for (const RankBeside& process : job) {
      if (process.rank >= 0) launchers.insert(StatOf(process.pid).parent);
    }
  }
  std::erase_if(jobs,
                [&](const Job& job) { return job.front().rank < 0 && launchers.contains(job.front().pid); });
}

// Without those that a rank has forked: they are the same program, and the same rank.
std::vector<pid_t> WithoutWorkers(const std::vector<observe::GpuProcess>& found) {
  std::map<pid_t, const observe::GpuProcess*> by_pid;
  for (const observe::GpuProcess& process : found) by_pid[process.pid] = &process;
  std::vector<pid_t> pids;
  for (const observe::GpuProcess& process : found) {
    const auto parent = by_pid.find(process.parent);
    if (parent != by_pid.end() && parent->second->program == process.program &&
        RankOfProcess(process.parent) == RankOfProcess(process.pid)) {
      continue;
    }
    pids.push_back(process.pid);
  }
  return pids;
}

absl::StatusOr<std::vector<pid_t>> FindPids(const std::vector<int>& given) {
  if (!given.empty()) return std::vector<pid_t>(given.begin(), given.end());
  const observe::GpuProcesses processes = observe::FindGpuProcesses();
  if (!processes.found.empty()) return WithoutWorkers(processes.found);
  return absl::NotFoundError(
      processes.unreadable > 0
          ? absl::StrCat("no process of this user uses a GPU here; ", processes.unreadable,
                         " processes of others could not be looked into: run it as root")
          : "no process here uses a GPU (none has the driver's library, libcuda.so, loaded)");
}

struct FirstLook {
  std::vector<observe::StackFrame> frames;
  bool whole = false;
  uint64_t cpu_ns = 0;
  Clock::time_point time;
};

const observe::ThreadStack* MainThread(const observe::ProcessStacks& process) {
  return process.threads.empty() ? nullptr : &process.threads.front();
}

FirstLook LookFirst(pid_t pid, observe::Native native) {
  FirstLook first{
      .frames = {}, .whole = false, .cpu_ns = observe::CpuTimeNs(pid).value_or(0), .time = Clock::now()};
  const observe::ProcessStacks stacks = observe::ReadStacks(pid, native);
  const observe::ThreadStack* main = MainThread(stacks);
  if (main == nullptr || main->frames.empty()) return first;
  first.frames = main->frames;
  first.whole = main->quality != stacks::StackQuality::kTorn;
  return first;
}

LookedAt LookAgain(const RankBeside& rank, const FirstLook& first, observe::Native native) {
  LookedAt out;
  out.stacks.process = observe::ReadStacks(rank.pid, native);
  if (rank.rank >= 0) {
    out.rank = rank.rank;
    out.stacks.label = absl::StrCat("rank ", rank.rank);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - first.time).count();
  if (const auto cpu_ns = observe::CpuTimeNs(rank.pid);
      cpu_ns.has_value() && *cpu_ns >= first.cpu_ns && seconds > 0)
    out.cpus = static_cast<double>(*cpu_ns - first.cpu_ns) / 1e9 / seconds;
  const observe::ThreadStack* main = MainThread(out.stacks.process);
  if (main != nullptr && !main->frames.empty() && !first.frames.empty())
    out.moved = !first.whole || main->quality == stacks::StackQuality::kTorn || main->frames != first.frames;
  return out;
}

}  // namespace

int LookMain(const Arguments& arguments) {
  CLI::App app(
      "Looks at the programs that use GPUs on this host, whether or not gpuprobe records them: job by job "
      "who is "
      "somewhere else than the others, who does not go on, what the GPUs do, and the stacks. No code runs in "
      "the "
      "processes, and nothing is stopped without --native.",
      "gpuprobe look");
  LookOptions options;
  app.add_option("PID", options.pids,
                 "processes, each with the other ranks of its job [all that use a GPU of this host]")
      ->check(CLI::PositiveNumber);
  app.add_option("--for", options.seconds, "time between the two looks that show who goes on")
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str()
      ->option_text("SECONDS");
  app.add_flag("--native", options.native,
               "functions of C and C++, too; stops each main thread, most often for less than a millisecond");
  app.add_flag("--json", options.json, "print JSON for tools");
  options.color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  const absl::StatusOr<std::vector<pid_t>> pids = FindPids(options.pids);
  if (!pids.ok()) return Fail(kLook, pids.status(), kFailed);
  std::vector<Job> found = JobsOf(*pids);
  if (options.pids.empty()) DropLaunchers(found);
  const observe::Native native = options.native ? observe::Native::kMainThread : observe::Native::kNone;
  std::map<pid_t, FirstLook> first;
  const Clock::time_point begin = Clock::now();
  for (const Job& job : found) {
    for (const RankBeside& rank : job) first[rank.pid] = LookFirst(rank.pid, native);
  }
  const std::vector<observe::GpuNow> gpus = observe::LookAtGpus(kPatienceWithDriver);
  std::this_thread::sleep_until(begin + std::chrono::duration<double>(options.seconds));
  std::vector<LookedAtJob> jobs;
  std::vector<std::string> ended;
  for (const Job& job : found) {
    LookedAtJob looked{.processes = {},
                       .seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
    for (const RankBeside& rank : job) {
      LookedAt process = LookAgain(rank, first[rank.pid], native);
      if (process.stacks.process.unreadable == stacks::Unreadable::kNoProcess) {
        // Of those that were found, some end meanwhile.
        if (!options.pids.empty()) ended.push_back(absl::StrCat(rank.pid));
        continue;
      }
      for (const observe::GpuNow& gpu : gpus) {
        if (std::find(gpu.pids.begin(), gpu.pids.end(), rank.pid) != gpu.pids.end())
          process.gpus.push_back(gpu);
      }
      looked.processes.push_back(std::move(process));
    }
    if (!looked.processes.empty()) jobs.push_back(std::move(looked));
  }
  for (const std::string& pid : ended) SayError(absl::StrCat(kLook, ": there is no process ", pid));
  if (jobs.empty()) return ended.empty() ? Fail(kLook, "all of them have ended", kFailed) : kFailed;
  if (options.json) {
    Print(text::PrintableLines(text::SafeJson(render::JsonText(LookJson(jobs)) + "\n")));
  } else {
    PrintForPeople(LookText(jobs, ScreenOf(STDOUT_FILENO, options.color.no_color)));
  }
  return ended.empty() ? kDone : kFailed;
}

}  // namespace gpuprobe::cli
