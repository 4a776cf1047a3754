// What the host allows the probe and the collector: filters, limits, processors, sockets, disk, other hosts.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"
#include "collector/cli/doctor/checks.h"
#include "collector/cli/doctor/thresholds.h"
#include "collector/cli/launched_rank.h"

namespace gpuprobe::cli::doctor {
namespace {

constexpr double kSecondsInHour = 3600;
constexpr mode_t kOthers = 0077;

// "for 25 hours of a rank ..."
std::string RankHours(uint64_t bytes) {
  const double hours = static_cast<double>(bytes) / (kRecordsPerSecond * kBytesPerRecord * kSecondsInHour);
  return absl::StrCat(
      hours < 10 ? absl::StrFormat("%.1f", hours) : analysis::Count(static_cast<uint64_t>(hours)),
      " rank-hours at 5,000 records a second");
}

void JudgeDescriptors(const LimitFacts& limits, Checks& checks) {
  if (limits.descriptors == 0 || limits.descriptors > kOwnDescriptors) return;
  const bool few = limits.descriptors < kFewestDescriptors;
  checks.push_back({"limits", few ? State::kWarning : State::kNote,
                    absl::StrCat(limits.descriptors,
                                 " file descriptors (ulimit -n): those of the probe are among the program's"),
                    "Raise it to 1024 or more (ulimit -n 1024)."});
}

void JudgeSocket(const SocketPlace& place, Checks& checks) {
  const std::string directory = place.path.substr(0, place.path.rfind('/'));
  const char* const elsewhere = "Set XDG_RUNTIME_DIR or GPUPROBE_SOCKET to a place of this user's.";
  if (place.too_long) {
    checks.push_back({"collector", State::kProblem,
                      absl::StrCat("the path of its socket has ", place.path.size(),
                                   " bytes, and the system allows ", kLongestSocketPath, ": ", place.path),
                      "Use a shorter one (GPUPROBE_SOCKET or XDG_RUNTIME_DIR)."});
  } else if (place.has_directory && !place.is_directory) {
    checks.push_back({"collector", State::kProblem,
                      absl::StrCat(directory, " is not a directory, or is a link"), elsewhere});
  } else if (place.state == SocketPlace::State::kForeign) {
    checks.push_back({"collector", State::kProblem,
                      absl::StrCat("who listens on ", place.path, " is another user (uid ", place.user,
                                   ", pid ", place.pid, "), whom programs do not trust"),
                      elsewhere});
  } else if (place.state == SocketPlace::State::kNoSocket) {
    checks.push_back({"collector", State::kProblem, absl::StrCat(place.path, " is not a socket"),
                      "Remove that file, or name another place with GPUPROBE_SOCKET."});
  }
}

std::string DirectoryOf(const SocketPlace& place) { return place.path.substr(0, place.path.rfind('/')); }

// Of a directory that must be this user's alone.
void JudgeSocketDirectory(const SocketPlace& place, uid_t user, Checks& checks) {
  constexpr char kElsewhere[] = "Set XDG_RUNTIME_DIR or GPUPROBE_SOCKET to a place of this user's.";
  const std::string directory = DirectoryOf(place);
  if (!place.has_directory) {
    if (!place.writable)
      checks.push_back({"collector", State::kProblem,
                        absl::StrCat(directory, " is not there, and cannot be made"), kElsewhere});
  } else if (place.is_directory && place.owner != user) {
    checks.push_back({"collector", State::kProblem,
                      absl::StrCat(directory, " belongs to another user (uid ", place.owner,
                                   "), so no collector can be started there"),
                      kElsewhere});
  } else if (place.is_directory && (place.mode & kOthers) != 0) {
    checks.push_back(
        {"collector", State::kProblem,
         absl::StrFormat("%s is open to others (mode %04o), so a program that loads the probe by itself "
                         "starts no collector there",
                         directory, place.mode),
         absl::StrCat("Close it: chmod 700 ", directory, ".")});
  }
}

// What is wrong with the places, up to the first that answers or where a collector can be started.
Checks JudgePlaces(const std::vector<SocketPlace>& places, uid_t user) {
  Checks checks;
  for (const SocketPlace& place : places) {
    if (place.state == SocketPlace::State::kAnswers || place.state == SocketPlace::State::kBusy)
      return checks;
    const size_t before = checks.size();
    JudgeSocket(place, checks);
    if (place.is_ours_by_name) JudgeSocketDirectory(place, user, checks);
    if (place.state == SocketPlace::State::kStale)
      checks.push_back({"collector", State::kNote,
                        absl::StrCat("a killed collector left ", place.path, " behind"),
                        "Nothing needs to be done: the next one replaces it."});
    const bool usable = std::none_of(checks.begin() + static_cast<ptrdiff_t>(before), checks.end(),
                                     [](const Check& check) { return check.state > State::kNote; });
    if (!usable || !place.is_ours_by_name) continue;
    for (Check& check : checks) {
      if (check.state > State::kNote)
        absl::StrAppend(&check.fact, "; programs use ", DirectoryOf(place), " instead");
      check.state = State::kNote;
    }
    return checks;
  }
  return checks;
}

bool Answers(const SocketPlace& place) {
  return place.state == SocketPlace::State::kAnswers || place.state == SocketPlace::State::kBusy;
}

// Which variable makes programs that are to be started load the probe; empty: none does.
std::string LoadingVariable(const Facts& facts) {
  if (!facts.environment.has_value() || facts.process.has_value()) return "";
  for (const NamedFile& file : facts.environment->files) {
    const bool loads = file.variable == "CUDA_INJECTION64_PATH" || file.variable == "LD_PRELOAD";
    if (loads && file.is_probe && file.error == 0) return file.variable;
  }
  return "";
}

// Where nobody answers.
void JudgeSilence(const Facts& facts, Checks& checks) {
  if (facts.command.has_value() || facts.process.has_value()) return;
  if (ValueOf(facts, "GPUPROBE_AUTOSTART") == "0")
    checks.push_back({"collector", State::kWarning,
                      "none answers, and GPUPROBE_AUTOSTART=0 forbids programs to start one",
                      "Start gpuprobe collect, or use gpuprobe run."});
  const SocketPlace& first = facts.sockets->front();
  if (first.configured && !first.has_directory)
    checks.push_back({"collector", State::kProblem,
                      absl::StrCat("the folder of GPUPROBE_SOCKET, ", first.path, ", is not there"),
                      "Make it, or unset the variable."});
}

void JudgeToken(const Facts& facts, Checks& checks) {
  const HostFacts& hosts = *facts.hosts;
  if (hosts.has_variable) return;
  if (hosts.has_munge) {
    checks.push_back({"hosts", State::kOk, "munge proves who joins this host's jobs", ""});
  } else if (hosts.token_file.empty()) {
    checks.push_back({"hosts", State::kProblem,
                      "there is no home directory for the secret of the job's hosts",
                      "Set GPUPROBE_HUB_TOKEN to the same secret on every host."});
  } else if (!hosts.token_exists) {
    checks.push_back(
        {"hosts", State::kNote,
         absl::StrCat(hosts.token_file, " is not there yet; the first gpuprobe run of the job makes it"),
         "On hosts that do not share this home, set GPUPROBE_HUB_TOKEN to the same secret."});
  } else if (hosts.token_owner != facts.user && hosts.token_owner != 0) {
    checks.push_back(
        {"hosts", State::kProblem,
         absl::StrCat(hosts.token_file, " belongs to another user (uid ", hosts.token_owner, ")"),
         "Remove it, or set GPUPROBE_HUB_TOKEN."});
  } else if (!hosts.token_problem.empty()) {
    checks.push_back({"hosts", State::kProblem, hosts.token_problem,
                      absl::StrCat("Make it readable by this user alone (chmod 600 ", hosts.token_file,
                                   "), with one line of 16 characters or more.")});
  } else {
    checks.push_back({"hosts", State::kOk, absl::StrCat("the secret is in ", hosts.token_file), ""});
  }
}

}  // namespace

std::string ValueOf(const Facts& facts, const std::string& name) {
  if (!facts.environment.has_value()) return "";
  const auto found = facts.environment->variables.find(name);
  return found == facts.environment->variables.end() ? "" : found->second;
}

int RanksHere(const Facts& facts) {
  if (facts.command.has_value() && facts.command->ranks.has_value()) return *facts.command->ranks;
  if (!facts.environment.has_value()) return 0;
  const Variables& variables = facts.environment->variables;
  const std::optional<LaunchedRank> rank = RankOfVariables([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  return rank.has_value() ? rank->ranks_here : 0;
}

bool IsInSandbox(const SandboxFacts& sandbox) {
  if (!sandbox.own.has_value() || sandbox.own->mode == 0) return false;
  return !sandbox.first.has_value() || sandbox.first->mode != sandbox.own->mode ||
         sandbox.first->count < sandbox.own->count;
}

void JudgeSandbox(const Facts& facts, Checks& checks) {
  const SandboxFacts& sandbox = *facts.sandbox;
  const bool allowed = ValueOf(facts, "GPUPROBE_IN_SANDBOX") == "1";
  if (IsInSandbox(sandbox)) {
    checks.push_back(
        {"sandbox", allowed ? State::kNote : State::kProblem,
         absl::StrCat("a system-call filter (seccomp) is in force that PID 1 does not have",
                      allowed ? ", and GPUPROBE_IN_SANDBOX=1 says that it allows what the probe needs"
                              : ", so the probe stays out of the program, in silence"),
         allowed ? "Make sure of it: docs/loading.md lists the calls, and one that is missing may end the "
                   "program."
                 : "Run outside of it, or allow what docs/loading.md lists and set GPUPROBE_IN_SANDBOX=1."});
  } else if (sandbox.own.has_value()) {
    checks.push_back(
        {"sandbox", State::kOk,
         sandbox.own->mode == 0 ? "no system-call filter" : "the container's system-call filter only", ""});
  }
  if (sandbox.is_first || sandbox.is_subreaper)
    checks.push_back(
        {"sandbox", State::kNote,
         sandbox.is_first
             ? "this is PID 1: a program in its place that loads the probe by itself starts no collector"
             : "this process adopts orphans: a program in its place that loads the probe by itself starts "
               "no collector",
         "Use gpuprobe run -- CMD, or start gpuprobe collect first."});
}

void JudgeLimits(const Facts& facts, Checks& checks) {
  const LimitFacts& limits = *facts.limits;
  const size_t before = checks.size();
  if (limits.memory_bytes.has_value() && *limits.memory_bytes < kAmpleMemoryLeftBytes) {
    const bool nothing = *limits.memory_bytes < kLeastMemoryLeftBytes;
    checks.push_back(
        {"limits", nothing ? State::kProblem : State::kWarning,
         absl::StrCat("address space or data is limited to ", analysis::Bytes(*limits.memory_bytes),
                      " (ulimit -v, -d): ",
                      nothing ? "too little for the program and the probe, so nothing is recorded"
                              : "the probe takes smaller buffers, and counts what does not fit"),
         "Raise the limit (ulimit -v unlimited); CUDA itself maps more than most limits allow."});
  }
  JudgeDescriptors(limits, checks);
  if (limits.processes_left.has_value() && *limits.processes_left < kFewestProcessesLeft)
    checks.push_back({"limits", State::kWarning,
                      absl::StrCat("this user may start ", *limits.processes_left,
                                   " more processes and threads (ulimit -u)"),
                      "Raise it: the probe needs a thread in each program, and a collector a few."});
  if (limits.memory.has_value() && limits.memory->left_bytes() < kGroupMemoryLeftBytes)
    checks.push_back({"limits", State::kWarning,
                      absl::StrCat("of the ", analysis::Bytes(limits.memory->limit_bytes),
                                   " of memory of this control group, ",
                                   analysis::Bytes(limits.memory->left_bytes()), " are left"),
                      "Give the container or job more memory: what goes beyond it is killed."});
  if (checks.size() == before)
    checks.push_back({"limits", State::kOk, "memory, descriptors and processes suffice", ""});
}

void JudgeCpus(const Facts& facts, Checks& checks) {
  const LimitFacts& limits = *facts.limits;
  if (limits.cpus == 0) return;
  constexpr uint32_t kMilli = 1000;
  const int ranks = RanksHere(facts);
  const bool quota = limits.quota_millicpus > 0 && limits.quota_millicpus < limits.cpus * kMilli;
  const double usable = quota ? static_cast<double>(limits.quota_millicpus) / kMilli : limits.cpus;
  std::string fact = quota
                         ? absl::StrFormat("%.1f of %d by the quota of a control group", usable, limits.cpus)
                         : absl::StrCat(limits.cpus);
  if (ranks > 0) absl::StrAppend(&fact, " for ", ranks, ranks == 1 ? " rank" : " ranks");
  if (ranks > 0 && usable < ranks) {
    checks.push_back(
        {"CPUs", State::kWarning,
         absl::StrCat(fact, ": fewer than one for each, so ranks wait for each other's"),
         "Widen the affinity (taskset, numactl, --cpus-per-task) or the quota, or start fewer ranks."});
    return;
  }
  checks.push_back({"CPUs", State::kOk, std::move(fact), ""});
}

void JudgeCollector(const Facts& facts, Checks& checks) {
  const std::vector<SocketPlace>& places = *facts.sockets;
  const size_t before = checks.size();
  const Checks of_places = JudgePlaces(places, facts.user);
  checks.insert(checks.end(), of_places.begin(), of_places.end());
  const auto answering = std::find_if(places.begin(), places.end(), Answers);
  if (answering == places.end()) {
    JudgeSilence(facts, checks);
    if (checks.size() == before)
      checks.push_back({"collector", State::kOk, "none runs yet; one is started with the job", ""});
    return;
  }
  const std::string variable = LoadingVariable(facts);
  checks.push_back(
      {"collector", State::kNote,
       absl::StrCat("pid ", answering->pid, " listens on ", answering->path,
                    answering->node_wide ? ", for all users" : "",
                    variable.empty() ? "" : ", and programs that are started here load the probe (", variable,
                    variable.empty() ? "" : ")"),
       variable.empty()
           ? "Programs that load the probe by themselves record there; gpuprobe run has a collector of its "
             "own."
           : "They are recorded there, without gpuprobe run, which has a collector of its own."});
}

void JudgeRecords(const Facts& facts, Checks& checks) {
  const RecordFacts& records = *facts.records;
  constexpr char kDisk[] = "disk";
  constexpr char kElsewhere[] = "Choose another place with --out.";
  if (records.silent) {
    checks.push_back({kDisk, State::kProblem,
                      absl::StrCat("the file system of ", records.path, " did not answer within 2 s"),
                      kElsewhere});
    return;
  }
  if (!records.refused.empty()) {
    checks.push_back({kDisk, State::kProblem,
                      absl::StrCat("gpuprobe will not record there: ", records.refused), kElsewhere});
    return;
  }
  if (records.read_only || !records.writable) {
    checks.push_back({kDisk, State::kProblem,
                      absl::StrCat(records.existing, records.read_only ? " is on a read-only file system"
                                                                       : " cannot be written by this user"),
                      kElsewhere});
    return;
  }
  const std::string room = absl::StrCat(records.path, ": ", analysis::Bytes(records.free_bytes), " free, ",
                                        RankHours(records.free_bytes));
  if (records.free_files.has_value() && *records.free_files < kFewestFreeFiles) {
    checks.push_back(
        {kDisk, *records.free_files == 0 ? State::kProblem : State::kWarning,
         absl::StrCat(records.path, ": ", analysis::Count(*records.free_files), " more files (inodes) fit"),
         "Remove old runs, or choose another place with --out."});
  } else if (records.free_bytes < kLeastFreeBytes) {
    checks.push_back({kDisk, State::kProblem, room, "Make room, or choose another place with --out."});
  } else if (records.free_bytes < facts.keep_bytes) {
    checks.push_back({kDisk, State::kWarning,
                      absl::StrCat(room, "; a run may take ", analysis::Bytes(facts.keep_bytes)),
                      "Make room, choose another place with --out, or let gpuprobe run --keep limit it."});
  } else if (!records.network.empty()) {
    checks.push_back(
        {kDisk, State::kNote, absl::StrCat(room, ", on a network file system (", records.network, ")"),
         "Record on a local disk if the file system is slow: what waits for it too long is lost."});
  } else {
    checks.push_back({kDisk, State::kOk, room, ""});
  }
}

void JudgeHosts(const Facts& facts, Checks& checks) {
  const HostFacts& hosts = *facts.hosts;
  if (facts.clock.has_value()) {
    if (facts.clock->synchronised) {
      checks.push_back({"clock", State::kOk, "synchronised, says the kernel", ""});
    } else {
      checks.push_back({"clock", hosts.spans_hosts ? State::kWarning : State::kNote,
                        absl::StrCat("not synchronised, says the kernel",
                                     hosts.spans_hosts ? ", and the job spans hosts"
                                                       : "; on one host that does not matter"),
                        "Start chronyd, ntpd or systemd-timesyncd, on every host of a job."});
    }
  }
  if (!hosts.spans_hosts && !hosts.wants_hub) return;
  JudgeToken(facts, checks);
  if (!hosts.no_hub.empty()) {
    // In a job of several hosts, the gpuprobe run on the named one may be it.
    checks.push_back({"hosts", hosts.spans_hosts ? State::kNote : State::kWarning,
                      absl::StrCat("no hub answers at ", hosts.hub, ": ", hosts.no_hub,
                                   hosts.spans_hosts ? "; it may come with the job" : ""),
                      "Start gpuprobe hub there, open its TCP port (9461), or set GPUPROBE_HUB=off."});
  } else if (!hosts.hub.empty()) {
    checks.push_back({"hosts", State::kOk, absl::StrCat("something answers at ", hosts.hub), ""});
  }
}

void JudgeStacks(const Facts& facts, Checks& checks) {
  constexpr int kChildrenOnly = 1;
  constexpr int kNobody = 3;
  const StackFacts& stacks = *facts.stacks;
  const int scope = stacks.ptrace_scope.value_or(0);
  const std::string fact = absl::StrCat("kernel.yama.ptrace_scope is ", scope);
  if (scope >= kNobody) {
    checks.push_back({"stacks", State::kNote,
                      absl::StrCat(fact, ": gpuprobe stacks and look show no stacks, --native neither"),
                      "Only a restart of the machine with another value changes that."});
  } else if (scope >= kChildrenOnly && !stacks.capable) {
    checks.push_back(
        {"stacks", State::kNote,
         absl::StrCat(fact, ": gpuprobe stacks and look show no stacks of programs that run already"),
         "Use them as root, or set it to 0 (sysctl kernel.yama.ptrace_scope=0)."});
  } else {
    checks.push_back(
        {"stacks", State::kOk, "gpuprobe stacks and look may read programs of this user, --native too", ""});
  }
}

Checks Diagnose(const Facts& facts) {
  Checks checks;
  if (facts.process.has_value()) JudgeProcess(facts, checks);
  if (facts.command.has_value()) JudgeCommand(*facts.command, checks);
  if (facts.library.has_value()) JudgeLibrary(*facts.library, checks);
  if (facts.gpus.has_value()) JudgeGpus(facts, checks);
  if (facts.cupti.has_value()) JudgeCupti(facts, checks);
  if (facts.environment.has_value()) JudgeEnvironment(facts, checks);
  if (facts.sandbox.has_value()) JudgeSandbox(facts, checks);
  if (facts.limits.has_value()) JudgeLimits(facts, checks);
  if (facts.limits.has_value()) JudgeCpus(facts, checks);
  if (facts.sockets.has_value() && !facts.sockets->empty()) JudgeCollector(facts, checks);
  if (facts.records.has_value()) JudgeRecords(facts, checks);
  if (facts.hosts.has_value()) JudgeHosts(facts, checks);
  if (facts.stacks.has_value()) JudgeStacks(facts, checks);
  return checks;
}

}  // namespace gpuprobe::cli::doctor
