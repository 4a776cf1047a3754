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
#include "collector/report/processes.h"
#include "collector/report/python_stack.h"

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
// This much above the median of the other ranks makes a difference to a late rank, and if it waits for a CPU
// twice as long as they do: where the host is short of CPUs for everybody, no rank is the culprit.
inline constexpr double kNoticedExcess = 0.05;
// Per second. A disk answers a hundred in 0.1 to 1 s of waiting.
inline constexpr double kNoticedFaults = 100;
// Of the time in which hosts are ready to run and have no CPU: on a quiet machine it is less.
inline constexpr double kBusyMachineShare = 0.05;
// CPUs in use by a process that launches nothing: a loop on the host. The probe's thread takes 0.01.
inline constexpr double kBusyCpus = 0.5;
// Its own threads (a logger, a watchdog, the probe's) keep an idle rank at a few hundredths of a CPU.
inline constexpr double kHardlyBusyCpus = 0.1;
// Share of the observations: processes pass through D whenever they read a file.
inline constexpr double kStuckShare = 0.8;

// Hosts that are ready to run and have no CPU: the median process's share of the time; 0 on a quiet machine,
// or where it is not known.
double CpuWaitOfBusyMachine(const std::vector<HostLoad>& loads);
// Each value the median of `loads`, of those that are known.
HostLoad UsualLoad(const std::vector<HostLoad>& loads);

// The process's halt at that time; nullptr: it can run, or nobody knows. Times on its line.
const model::ProcessCondition::Halt* FindHalt(const model::ProcessModel& process, uint64_t now_ns);
// Since when it could not run and has reported nothing: it may have been stopped, and then killed.
uint64_t HaltedSinceNs(const model::ProcessModel& process, const model::ProcessCondition::Halt& halt);
// Absent: it can run, or nobody knows. `now_ns`: on its line.
std::optional<Halt> HaltOf(const model::ProcessModel& process, uint64_t now_ns);
// Over the time since then; 0: all of it.
// Where the main thread is stuck in its Python code; empty: it goes on, or that is not known.
std::vector<PythonFrame> PythonFrames(const v1::PythonStack& stack);
HostLoad HostLoadOf(const model::ProcessModel& process, uint64_t since_ns);

// Known to use hardly any CPU, while its main thread waits neither for a message that may still come nor for
// a child process.
bool IsIdle(const HostLoad& load);

// "18:02:11 UTC"
std::string ClockTime(uint64_t realtime_ns);
// By which signal a process was asked to end: SIGTERM, SIGINT, SIGHUP or SIGQUIT; 0: it ended otherwise.
// People and launchers end jobs with these, so they do not explain why a job ended. A program that handles
// one usually exits with 128 plus its number.
uint32_t RequestToEnd(const Halt& end);

// "has been stopped (SIGSTOP) since 18:02:11 UTC"
std::string HaltText(const Halt& halt);

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
