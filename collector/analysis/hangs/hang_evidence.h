// Evidence about a wait from the records of one process: what it launched before a call, whether it is alive,
// and what it did last. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

inline uint64_t Since(uint64_t now_ns, uint64_t then_ns) { return now_ns > then_ns ? now_ns - then_ns : 0; }

// When the process last did something.
uint64_t AliveNs(const model::ProcessModel& process);
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

// Launches after the process's last NCCL call and before `from`.
uint64_t LaunchesSinceLastPlan(const model::ProcessModel& process, LaunchOf from);
// It is gone, and nothing went wrong, as far as the kernel or itself says.
bool EndedWell(const model::ProcessModel& process);

std::optional<int> RankOf(const model::ProcessModel& process);
HangRank DescribeRank(const model::ProcessModel& process, HangRank::State state, uint64_t now_ns);

}  // namespace gpuprobe::analysis
