#include "collector/analysis/hangs/process_state.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/process/process_model.h"

namespace gpuprobe::analysis {
namespace {

using Condition = model::ProcessCondition;

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

bool Above(double value, double usual, double least, double excess) {
  return value >= least && value - usual >= excess;
}

// On a busy machine ranks wait for a CPU by turns, and one of them longest.
bool WaitsForCpu(const HostLoad& load, const HostLoad& usual) {
  return Above(load.waits_for_cpu, usual.waits_for_cpu, kNoticedShare,
               std::max(kNoticedExcess, usual.waits_for_cpu));
}

std::string Versus(const HostLoad* usual, double share) {
  return usual == nullptr ? "" : absl::StrCat(" (other ranks: ", Percent(share), ")");
}

std::string EndText(const Halt& halt) {
  const std::string at = absl::StrCat(" at ", ClockTime(halt.since_ns));
  if (halt.out_of_memory)
    return absl::StrCat("was killed", at, " because its cgroup or host ran out of memory");
  if (halt.signal.has_value()) {
    const bool killed = *halt.signal == SIGKILL || *halt.signal == SIGTERM || *halt.signal == SIGINT;
    return absl::StrCat(killed ? "was killed by " : "crashed with ", SignalName(*halt.signal), at);
  }
  if (halt.exit_code.has_value()) return absl::StrCat("exited with code ", *halt.exit_code, at);
  return absl::StrCat("ended without notice", at);
}

Halt Describe(const model::ProcessModel& process, const Condition::Halt& found) {
  Halt halt;
  halt.since_ns = process.Realtime(found.since_ns);
  halt.tracer = found.tracer;
  if (found.reason == Condition::Reason::kStopped && found.stop_signal != 0) halt.signal = found.stop_signal;
  if (found.reason == Condition::Reason::kTraced) halt.kind = Halt::Kind::kTraced;
  if (found.reason == Condition::Reason::kFrozen) halt.kind = Halt::Kind::kFrozen;
  return halt;
}

}  // namespace

const Condition::Halt* FindHalt(const model::ProcessModel& process, uint64_t now_ns) {
  const uint64_t heard_ns = std::max(process.totals().last_clock_ns, process.totals().last_ns);
  const auto& halts = process.condition().halts();
  for (auto halt = halts.rbegin(); halt != halts.rend(); ++halt) {
    if (halt->since_ns > now_ns) continue;
    if (halt->reason == Condition::Reason::kEnded) {
      // Where the kernel does not say how it ended, it is believed that it ended well if it said goodbye.
      const bool well =
          !process.condition().end().known() && (process.end_state() == model::EndState::kSaidBye ||
                                                 process.end_state() == model::EndState::kSaidByeIncomplete);
      if (!well && now_ns - halt->since_ns >= kEndedWithTheJobNs) return &*halt;
      continue;
    }
    // It has reported since, or the collector has not looked for long.
    const bool over = heard_ns > halt->until_ns || now_ns > halt->until_ns + kFreshObservationNs;
    return over ? nullptr : &*halt;
  }
  return nullptr;
}

uint64_t HaltedSinceNs(const model::ProcessModel& process, const Condition::Halt& halt) {
  const uint64_t heard_ns = std::max(process.totals().last_clock_ns, process.totals().last_ns);
  const auto& halts = process.condition().halts();
  uint64_t since_ns = halt.since_ns;
  for (auto before = halts.rbegin(); before != halts.rend(); ++before) {
    if (before->since_ns >= since_ns) continue;
    if (heard_ns > before->until_ns || since_ns > before->until_ns + kFreshObservationNs) break;
    since_ns = before->since_ns;
  }
  return since_ns;
}

std::vector<Stop> StopsOf(const model::ProcessModel& process) {
  std::vector<Stop> stops;
  for (const Condition::Halt& halt : process.condition().halts()) {
    if (halt.reason == Condition::Reason::kEnded || halt.until_ns - halt.since_ns < thresholds::kStopNs)
      continue;
    stops.push_back({.halt = Describe(process, halt), .until_ns = process.Realtime(halt.until_ns)});
  }
  return stops;
}

std::optional<Halt> HaltOf(const model::ProcessModel& process, uint64_t now_ns) {
  const Condition::Halt* found = FindHalt(process, now_ns);
  if (found == nullptr) return std::nullopt;
  Halt halt = Describe(process, *found);
  if (found->reason != Condition::Reason::kEnded) return halt;
  halt.kind = Halt::Kind::kEnded;
  const v1::ProcessEnd& end = process.condition().end();
  if (end.known() && end.signal() != 0) halt.signal = end.signal();
  if (end.known() && end.signal() == 0) halt.exit_code = end.exit_code();
  halt.out_of_memory = end.out_of_memory() && halt.signal == uint32_t{SIGKILL};
  return halt;
}

std::vector<PythonFrame> PythonFrames(const v1::PythonStack& stack) {
  std::vector<PythonFrame> frames;
  for (const v1::PythonFrame& frame : stack.frames())
    frames.push_back({frame.function(), frame.file(), frame.line()});
  return frames;
}

HostLoad HostLoadOf(const model::ProcessModel& process, uint64_t since_ns) {
  const Condition& c = process.condition();
  const Condition::Sums sums = since_ns == 0 ? c.totals() : c.Since(since_ns);
  const double seconds = static_cast<double>(sums.observed_ns) / 1e9;
  if (seconds <= 0) return {};
  return {.observed_s = seconds,
          .cpus = static_cast<double>(sums.cpu_ns) / 1e9 / seconds,
          .waits_for_cpu = Share(sums.run_delay_ns, sums.observed_ns),
          .throttled = Share(sums.throttled_periods, sums.quota_periods),
          .quota_cpus = c.quota_millicpus() / 1000.0,
          .major_faults_per_s = static_cast<double>(sums.major_faults) / seconds,
          .memory_stall = Share(sums.memory_stall_ns, sums.observed_ns),
          .swapped_bytes = c.swapped_bytes(),
          .waits_for = c.waits_for(),
          .wait_channel = c.wait_channel(),
          .uninterruptible = c.ShareOfState('D', since_ns)};
}

HostLoad UsualLoad(const std::vector<HostLoad>& loads) {
  const auto median = [&](auto get) {
    std::vector<double> values;
    for (const HostLoad& load : loads) {
      if (load.observed_s > 0) values.push_back(get(load));
    }
    if (values.empty()) return 0.0;
    const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  HostLoad usual;
  usual.observed_s = median([](const HostLoad& l) { return l.observed_s; });
  usual.cpus = median([](const HostLoad& l) { return l.cpus; });
  usual.waits_for_cpu = median([](const HostLoad& l) { return l.waits_for_cpu; });
  usual.throttled = median([](const HostLoad& l) { return l.throttled; });
  usual.major_faults_per_s = median([](const HostLoad& l) { return l.major_faults_per_s; });
  usual.memory_stall = median([](const HostLoad& l) { return l.memory_stall; });
  usual.uninterruptible = median([](const HostLoad& l) { return l.uninterruptible; });
  return usual;
}

double CpuWaitOfBusyMachine(const std::vector<HostLoad>& loads) {
  const double share = UsualLoad(loads).waits_for_cpu;
  return share >= kBusyMachineShare ? share : 0;
}

bool IsIdle(const HostLoad& load) {
  if (load.observed_s == 0 || load.cpus >= kHardlyBusyCpus) return false;
  for (const char* call : {"poll", "epoll_wait", "select", "accept", "recv", "wait"}) {
    if (absl::StartsWith(load.waits_for, call)) return false;
  }
  // A file's path is no message.
  return !absl::StartsWith(load.waits_for, "read") ||
         !(absl::StrContains(load.waits_for, "pipe:") || absl::StrContains(load.waits_for, "socket:") ||
           absl::StrContains(load.waits_for, " /dev/"));
}

std::string ClockTime(uint64_t realtime_ns) {
  return absl::FormatTime("%H:%M:%S UTC", absl::FromUnixNanos(static_cast<int64_t>(realtime_ns)),
                          absl::UTCTimeZone());
}

std::string StopText(const Halt& halt) {
  switch (halt.kind) {
    case Halt::Kind::kTraced:
      return absl::StrCat(
          "stopped by ", halt.tracer.empty() ? "a debugger" : absl::StrCat("a debugger (", halt.tracer, ")"));
    case Halt::Kind::kFrozen:
      return "frozen by its cgroup";
    default:
      return absl::StrCat("stopped (", halt.signal.has_value() ? SignalName(*halt.signal) : "by a signal",
                          ")");
  }
}

uint32_t RequestToEnd(const Halt& end) {
  constexpr uint32_t kShellsBase = 128;
  uint32_t signal = end.signal.value_or(0);
  if (signal == 0 && end.exit_code.value_or(0) > kShellsBase) signal = *end.exit_code - kShellsBase;
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT ? signal : 0;
}

std::string HaltText(const Halt& halt) {
  if (halt.kind == Halt::Kind::kEnded) return EndText(halt);
  return absl::StrCat("has been ", StopText(halt), " since ", ClockTime(halt.since_ns));
}

std::string HaltAdvice(const Halt& halt, const std::string& who, uint32_t pid) {
  switch (halt.kind) {
    case Halt::Kind::kStopped:
      return absl::StrCat("Continue it with kill -CONT ", pid, ", and find out who stopped it.");
    case Halt::Kind::kTraced:
      return absl::StrCat("Continue ", who, " in the debugger, or detach it.");
    case Halt::Kind::kFrozen:
      return "Thaw its cgroup (cgroup.freeze), and find out who froze it: a container runtime's pause, or a "
             "batch system's suspend.";
    default:
      if (halt.out_of_memory) return "Give it more host memory, or use less: fewer data loader workers.";
      return halt.signal == uint32_t{SIGKILL} ? absl::StrCat(
                                                    "Someone killed it, or the kernel did when memory ran "
                                                    "out: check dmesg and the batch system's log for pid ",
                                                    pid, ".")
                                              : absl::StrCat("See ", who, "'s own log for the reason.");
  }
}

std::vector<std::string> HostLoadClauses(const HostLoad& load, const HostLoad* usual) {
  const HostLoad other = usual != nullptr ? *usual : HostLoad{};
  std::vector<std::string> clauses;
  if (load.observed_s <= 0) return clauses;
  const bool throttled = Above(load.throttled, other.throttled, kNoticedShare, kNoticedExcess);
  if (throttled)
    clauses.push_back(
        absl::StrFormat("its cgroup is throttled: the quota of %.3g CPUs ran out in %s of the periods",
                        load.quota_cpus, Percent(load.throttled)));
  // A throttled thread waits for a CPU, too, as the kernel counts.
  if (!throttled && WaitsForCpu(load, other))
    clauses.push_back(absl::StrCat("its threads wait for a CPU ", Percent(load.waits_for_cpu), " of the time",
                                   Versus(usual, other.waits_for_cpu)));
  if (Above(load.major_faults_per_s, other.major_faults_per_s, kNoticedFaults, kNoticedFaults / 2)) {
    clauses.push_back(absl::StrFormat("%s%.0f major page faults per second",
                                      load.swapped_bytes > 0 ? "it is swapping: " : "",
                                      load.major_faults_per_s));
    if (load.swapped_bytes > 0)
      absl::StrAppend(&clauses.back(), ", ", Bytes(load.swapped_bytes), " swapped out");
  }
  if (Above(load.memory_stall, other.memory_stall, kNoticedShare, kNoticedExcess))
    clauses.push_back(absl::StrCat("it stalls on memory ", Percent(load.memory_stall), " of the time"));
  return clauses;
}

std::string HostLoadAdvice(const HostLoad& load, const HostLoad* usual, const std::string& who) {
  const HostLoad other = usual != nullptr ? *usual : HostLoad{};
  if (HostLoadClauses(load, usual).empty()) return "";
  if (Above(load.throttled, other.throttled, kNoticedShare, kNoticedExcess))
    return absl::StrCat("Raise the CPU quota of ", who, "'s cgroup, or lift it.");
  if (WaitsForCpu(load, other))
    return absl::StrCat("Find out what else runs on ", who,
                        "'s CPUs: its affinity, other ranks bound to the same cores, too many data loader "
                        "workers.");
  return absl::StrCat("Check host memory around ", who,
                      ": swap, the cgroup's limit, and other processes that use it.");
}

}  // namespace gpuprobe::analysis
