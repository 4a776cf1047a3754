#include "collector/analysis/hangs/hang_no_work.h"

#include <algorithm>
#include <vector>

#include "collector/analysis/hangs/hang_evidence.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::ProcessModel;

bool SharesCommunicator(const ProcessModel& process) {
  const auto& known = process.communicators();
  return std::any_of(known.begin(), known.end(), [](const auto& entry) {
    return entry.second.state() == v1::COMMUNICATOR_STATE_CREATED && entry.second.ranks() > 1;
  });
}

// Whether something else may explain that it launches nothing, so that it does not count as standing still.
bool MayWork(const ProcessModel& process, uint64_t now_ns) {
  const HostProgress& p = process.progress();
  if (!HeardAllLaunches(process) || p.creating.since_ns != 0 || p.blocked_in != 0) return true;
  if (EndedWell(process) || IsGone(process, now_ns) || FindHalt(process, now_ns) != nullptr) return true;
  const LaunchedBefore launched = LaunchesBefore(process, {});
  return !launched.plans.empty() || !launched.others.empty();
}

// A training loop goes backward and updates its weights. A server that answers requests does neither, and
// waits for the next one in whatever way it likes: on a socket, a semaphore in shared memory, or asleep.
bool Trains(const ProcessModel& process) {
  const model::StepStatistics& s = process.steps().statistics();
  return s.total_ns.count() >= thresholds::kTrainingSteps &&
         (s.phase_ns[static_cast<size_t>(model::StepPhase::kBackward)].total() > 0 ||
          s.phase_ns[static_cast<size_t>(model::StepPhase::kOptimizer)].total() > 0);
}

}  // namespace

std::optional<Hang> JobWithoutWork(const model::JobModel& job, const ProcessLabels& labels, uint64_t now_ns,
                                   uint64_t after_ns) {
  std::vector<const ProcessModel*> members;
  uint64_t since_ns = 0;
  uint64_t alive_ns = 0;
  uint64_t heard_ns = now_ns;
  uint64_t pause_ns = UINT64_MAX;
  uint64_t steps = UINT64_MAX;
  bool trains = false;
  for (const auto& process : job.processes()) {
    if (!SharesCommunicator(*process)) continue;
    const HostProgress& p = process->progress();
    members.push_back(process.get());
    since_ns = std::max({since_ns, p.last_launch_ns, p.last_call.return_ns});
    alive_ns = std::max(alive_ns, AliveNs(*process));
    heard_ns = std::min(heard_ns, NowOf(*process, now_ns));
    pause_ns = std::min(pause_ns, p.longest_pause_ns);
    steps = std::min(steps, process->steps().count());
    trains = trains || Trains(*process);
  }
  if (members.size() < 2 || since_ns == 0) return std::nullopt;
  const uint64_t known_pause_ns = thresholds::kNoWorkPauses * pause_ns;
  if (Since(heard_ns, alive_ns) < std::max(after_ns, known_pause_ns)) return std::nullopt;
  if (std::any_of(members.begin(), members.end(),
                  [&](const ProcessModel* process) { return MayWork(*process, now_ns); }))
    return std::nullopt;
  Hang hang;
  hang.kind = Hang::Kind::kNoWork;
  hang.culprit_known = false;
  hang.since_ns = since_ns;
  hang.waiting_ns = Since(heard_ns, since_ns);
  hang.steps = steps;
  hang.idle = !trains;
  for (const ProcessModel* process : members) {
    HangRank r = DescribeRank(*process, HangRank::State::kIdle, heard_ns);
    r.label = labels.Of(*process);
    r.load = HostLoadOf(*process, since_ns);
    r.python = PythonFrames(process->condition().python());
    hang.idle = hang.idle || !IsIdle(r.load);
    if (hang.ranks.size() == Hang::kMaxRanks) {
      ++hang.ranks_left_out;
      continue;
    }
    hang.waiting.push_back({.label = r.label, .host = r.host, .pid = r.pid});
    hang.ranks.push_back(std::move(r));
  }
  const uint64_t limit_ns = (hang.idle ? thresholds::kHangExcuses : 1) * after_ns;
  if (Since(heard_ns, alive_ns) < std::max(limit_ns, known_pause_ns)) return std::nullopt;
  return hang;
}

}  // namespace gpuprobe::analysis
