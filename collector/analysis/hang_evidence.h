// Evidence about a wait from the records of one process: what it launched before a call, whether it is alive,
// what it did last. And a suspect: something that processes wait in together, before it is judged.
//
// Separate from the search (hangs.h) because collectives and transfers ask the same questions. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// A connected process sends something every two seconds, whatever it does.
inline constexpr uint64_t kSilentNs = 10'000'000'000;

inline uint64_t Since(uint64_t now_ns, uint64_t then_ns) { return now_ns > then_ns ? now_ns - then_ns : 0; }

uint64_t LastHeardNs(const model::ProcessModel& process);
inline bool Ended(const model::ProcessModel& process) {
  return process.end_state() != model::EndState::kConnected;
}
// It ended before the end of what is looked at: when the job is over, every process has ended.
bool IsGone(const model::ProcessModel& process, uint64_t now_ns);
// Up to when a process is known to have given no further sign of life.
uint64_t NowOf(const model::ProcessModel& process, uint64_t now_ns);
// Whether everything that its threads launched and called was reported, as far as it says.
bool HeardAllLaunches(const model::ProcessModel& process);
// Issued since the process's main thread last came back from waiting for the device.
inline bool SinceLastWait(const model::ProcessModel& process, uint64_t issue_ns) {
  return issue_ns > process.progress().last_wait_end_ns;
}

// The launches of a process before one plan.
struct LaunchedBefore {
  uint64_t correlation = 0;     // of the launch that is looked back from, 0: not known
  uint64_t end_ns = 0;          // when the last of this work ended
  std::vector<uint64_t> plans;  // other plans before it that have not
  // Correlation ids of other launches before it that have not; those of graphs are among them.
  std::vector<uint64_t> others;
};
// Where to look back from; both 0: from the end of everything that is known.
struct LaunchOf {
  uint64_t plan = 0;
  uint64_t correlation = 0;  // instead, of a graph
  // NOLINTNEXTLINE(modernize-use-nullptr)
  auto operator<=>(const LaunchOf&) const = default;
};
// Launches before the main thread last waited for the device and came back count as ended, whether their
// records have come or not.
LaunchedBefore LaunchesBefore(const model::ProcessModel& process, LaunchOf from);

HangRank DescribeRank(const model::ProcessModel& process, HangRank::State state, uint64_t now_ns);

// A process that issued its part.
struct HangParty {
  uint32_t process = 0;  // index into JobModel::processes
  uint64_t issue_ns = 0;
  LaunchOf launch;
};

// A collective, a send and its receive, or the replay of a graph.
struct HangSuspect {
  std::function<Hang()> describe;  // what it is, without its ranks and times
  bool transfer = false;
  std::vector<HangParty> waiting;           // something on the device came of their call
  std::vector<HangParty> launched_nothing;  // nothing did
  std::vector<uint32_t> missing;            // processes that did not issue it
  std::vector<HangParty> behind;            // that wait for something else in the same launches
  std::function<void(uint32_t process, uint64_t now_ns, HangRank&)> describe_rank;  // what more there is
};

// Sends and receives that have waited since before `until_ns`: one suspect for each process that others wait
// for, and one for each pair of which both sides are issued (at most kMaxPairs, the oldest).
inline constexpr size_t kMaxPairs = 256;
std::vector<HangSuspect> TransfersThatWait(const model::JobModel& job, uint64_t until_ns);

// Launches of CUDA graphs whose collectives ranks have waited in since before `until_ns`.
std::vector<HangSuspect> ReplaysThatWait(const model::JobModel& job, uint64_t until_ns);

}  // namespace gpuprobe::analysis
