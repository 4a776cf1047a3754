// What the kernel reported about a process, as verdicts use it: why it cannot run, and what its host costs
// it. Plain data of the report, with its words; and how it is derived from the model.
//
// Example: rank 3 got SIGSTOP, and the others wait in an AllReduce. Its halt reads "has been stopped
// (SIGSTOP) since 18:02:11 UTC", and the hang is attributed to it. Rank 5 is late in every step, and its
// threads were ready but not running for 38 % of the time, the others' for 1 %: that is why it launches late.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/process/process_condition.h"

namespace gpuprobe::model {
class ProcessModel;
}

namespace gpuprobe::analysis {

// An observation is a second old, two when the host is busy; older, and the collector itself stood still.
inline constexpr uint64_t kFreshObservationNs = 5'000'000'000;
// A process that ends within this time of the job's end ended with it.
inline constexpr uint64_t kEndedWithTheJobNs = 1'000'000'000;
// Share of the time: the cost of a busy but sufficient host stays well below.
inline constexpr double kNoticedShare = 0.10;
// This much above the median of the other ranks makes a difference to a late rank: where the host is short of
// CPUs for everybody, no rank is the culprit.
inline constexpr double kNoticedExcess = 0.05;
// Per second. A disk answers a hundred in 0.1 to 1 s of waiting.
inline constexpr double kNoticedFaults = 100;
// CPUs in use by a process that launches nothing: a loop on the host. The probe's thread takes 0.01.
inline constexpr double kBusyCpus = 0.5;
// Share of the observations: processes pass through D whenever they read a file.
inline constexpr double kStuckShare = 0.8;

// A state in which no thread of the process can run.
struct Halt {
  enum class Kind { kStopped, kTraced, kFrozen, kEnded };
  Kind kind = Kind::kStopped;
  uint64_t since_ns = 0;                          // as the clock said
  std::optional<uint32_t> signal = std::nullopt;  // that stopped or ended it
  std::optional<uint32_t> exit_code = std::nullopt;
  bool out_of_memory = false;  // kEnded: killed by the kernel, out of memory, as its cgroup counts
  std::string tracer = {};
};

// Costs of the host, relative to the time looked at.
struct HostLoad {
  double observed_s = 0;     // 0: nothing is known
  double cpus = 0;           // used, on average
  double waits_for_cpu = 0;  // share that the thread which waited most was ready to run and did not
  double throttled = 0;      // share of the periods in which its cgroup's CPU quota was used up
  double quota_cpus = 0;     // 0: none
  double major_faults_per_s = 0;
  double memory_stall = 0;  // share that everything in its cgroup waited for memory
  uint64_t swapped_bytes = 0;
  std::string waits_for = {};     // of the main thread, at the end: "read /data/fifo"
  std::string wait_channel = {};  // kernel function, at the end
  double uninterruptible = 0;     // share that the main thread was in state D
};

// Each value the median of `loads`, of those that are known.
HostLoad UsualLoad(const std::vector<HostLoad>& loads);

// The process's halt at that time; nullptr: it can run, or nobody knows. Times on its line.
const model::ProcessCondition::Halt* FindHalt(const model::ProcessModel& process, uint64_t now_ns);
// Absent: it can run, or nobody knows. `now_ns`: on its line.
std::optional<Halt> HaltOf(const model::ProcessModel& process, uint64_t now_ns);
// Over the time since then; 0: all of it.
HostLoad HostLoadOf(const model::ProcessModel& process, uint64_t since_ns);

// "stopped", "traced", "frozen", "ended"
std::string HaltName(Halt::Kind kind);
// "SIGKILL", "signal 40"
std::string SignalName(uint32_t signal);
// "18:02:11 UTC"
std::string ClockTime(uint64_t realtime_ns);
// "has been stopped (SIGSTOP) since 18:02:11 UTC"
std::string HaltText(const Halt& halt);

// A time in which no thread of it could run, and after which it went on or the run ended.
struct Stop {
  Halt halt;
  uint64_t until_ns = 0;  // as the clock said: the last observation that had it
};
// The latest last, without the process's end.
std::vector<Stop> StopsOf(const model::ProcessModel& process);
// "stopped (SIGSTOP)"
std::string StopText(const Halt& halt);
std::string HaltAdvice(const Halt& halt, const std::string& who, uint32_t pid);

// Clauses on what is remarkable about it: "its threads wait for a CPU 38 % of the time". `usual`, if not
// null: the other ranks' load; anything no higher than that is not remarkable.
std::vector<std::string> HostLoadClauses(const HostLoad& load, const HostLoad* usual);
// Advice on the first of these; empty: nothing is remarkable.
std::string HostLoadAdvice(const HostLoad& load, const HostLoad* usual, const std::string& who);

}  // namespace gpuprobe::analysis
