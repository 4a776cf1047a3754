// Collectives that ranks wait in, at most one for each communicator: of those that are recorded, and of those
// that hosts are known to have issued at level calls.
#include <algorithm>

#include "collector/analysis/hangs/hang_calls.h"
#include "collector/analysis/hangs/hang_suspect.h"
#include "collector/analysis/hangs/process_state.h"

namespace gpuprobe::analysis {
namespace {

using model::IssuedCalls;
using model::ProcessModel;

// False only if the call is known to have put nothing on the device: the rank does not wait in it.
bool LaunchedSomething(const ProcessModel& process, const IssuedCalls::Issue& issue) {
  if (issue.plan == 0) return false;
  if (!process.collectives().LaunchedNothing(issue.plan)) return true;
  return !HeardAllLaunches(process) || process.progress().last_left_out_ns > issue.issue_ns;
}

bool IsByAll(const IssuedCalls::Communicator& comm, const IssuedCalls::Call& call) {
  return call.issues.size() >= comm.ranks.size();
}

// The call that the ranks wait in, as far as is known: some have not issued it; or it launched nothing on
// some; or it is the first that is not known to be over. `traced`: of none is it known, and those that all
// have issued are passed over.
const IssuedCalls::Call* WaitedFor(const model::JobModel& job, const IssuedCalls::Communicator& comm,
                                   bool traced, uint64_t now_ns) {
  if (comm.calls.empty()) return nullptr;  // as all of one kind are, by the job's level
  const auto of = [&](uint32_t process) -> const ProcessModel& { return *job.processes()[process]; };
  uint64_t issued_by_all = UINT64_MAX;
  bool left_out = false;  // calls, on request, on a rank that issued as few as any
  for (const IssuedCalls::RankState& state : comm.ranks) {
    if (state.process == IssuedCalls::kNoProcess || state.next_seq > issued_by_all) continue;
    const bool leaves_out = of(state.process).progress().last_left_out_ns != 0;
    left_out = leaves_out || (left_out && state.next_seq == issued_by_all);
    // A call that has ended was issued by all, even if a halted rank will never report it.
    issued_by_all = state.next_seq;
    if (FindHalt(of(state.process), now_ns) != nullptr)
      issued_by_all = std::max(issued_by_all, comm.finished);
  }
  const IssuedCalls::Call* first = nullptr;
  for (const IssuedCalls::Call& call : comm.calls) {
    if (call.seq < comm.finished || (traced && IsByAll(comm, call))) continue;
    size_t launched = 0;
    bool since_last_wait = false;
    bool missing_waits_here = false;
    for (const IssuedCalls::Issue& issue : call.issues) {
      const IssuedCalls::RankState& rank = comm.ranks[static_cast<size_t>(issue.comm_rank)];
      if (!LaunchedSomething(of(rank.process), issue)) continue;
      ++launched;
      if (!SinceLastWait(of(rank.process), issue.issue_ns)) continue;
      since_last_wait = true;
      missing_waits_here = missing_waits_here || rank.next_seq == issued_by_all;
    }
    if (launched == 0) continue;
    const bool not_by_all = call.seq == issued_by_all || (left_out && call.seq > issued_by_all);
    if (launched < call.issues.size() || not_by_all) return first != nullptr ? first : &call;
    // All issued it. When a rank that issued nothing after it waits in it, the others are ahead of that.
    if (since_last_wait && (missing_waits_here || comm.calls.back().seq < issued_by_all) && first == nullptr)
      first = &call;
  }
  return first;
}

// The last call, which all ranks are known to have issued and nothing more, if one that cannot run keeps it
// from its end.
const IssuedCalls::Call* HeldBackByAHalt(const model::JobModel& job, const IssuedCalls::Communicator& comm,
                                         uint64_t now_ns) {
  if (comm.calls.empty() || !IsByAll(comm, comm.calls.back())) return nullptr;
  const IssuedCalls::Call& call = comm.calls.back();
  bool waits = false;
  bool halted = false;
  for (const IssuedCalls::Issue& issue : call.issues) {
    const uint32_t number = comm.ranks[static_cast<size_t>(issue.comm_rank)].process;
    const ProcessModel& process = *job.processes()[number];
    if (FindHalt(process, now_ns) != nullptr) {
      halted = true;
    } else {
      // It did not go on from there.
      waits = waits || (process.progress().last_call.issue_ns <= issue.issue_ns &&
                        SinceLastWait(process, issue.issue_ns));
    }
  }
  return halted && waits ? &call : nullptr;
}

HangSuspect SuspectOf(const model::JobModel& job, uint64_t hash, const IssuedCalls::Communicator& comm,
                      const IssuedCalls::Call& call) {
  HangSuspect s;
  for (const IssuedCalls::Issue& issue : call.issues) {
    s.traced = s.traced || issue.plan == IssuedCalls::kPlanNotKnown;
    const uint32_t process = comm.ranks[static_cast<size_t>(issue.comm_rank)].process;
    const HangParty party{.process = process, .issue_ns = issue.issue_ns, .launch = {.plan = issue.plan}};
    (LaunchedSomething(*job.processes()[process], issue) ? s.waiting : s.launched_nothing).push_back(party);
  }
  uint64_t most = call.seq + 1;
  bool level = true;  // the missing ones made the same number of calls
  for (const IssuedCalls::RankState& state : comm.ranks) {
    if (state.process == IssuedCalls::kNoProcess) continue;
    most = std::max(most, state.next_seq);
    if (state.next_seq > call.seq) continue;
    s.missing.push_back(state.process);
    level = level && state.next_seq == call.seq;
  }
  if (level && !s.missing.empty() && comm.heard == comm.ranks.size()) s.extra_calls = most - call.seq;
  s.describe = [&job, hash, &comm, &call] { return HangInCall(job, hash, comm, call); };
  return s;
}

}  // namespace

std::vector<HangSuspect> CollectivesThatWait(const model::JobModel& job, uint64_t now_ns,
                                             const std::map<uint64_t, uint64_t>& mismatched) {
  std::vector<HangSuspect> out;
  for (const auto& [hash, comm] : job.issued().communicators()) {
    const IssuedCalls::Call* call = WaitedFor(job, comm, false, now_ns);
    bool told = false;
    if (const auto differs = mismatched.find(hash); differs != mismatched.end()) {
      const auto at = std::find_if(comm.calls.begin(), comm.calls.end(),
                                   [&](const IssuedCalls::Call& c) { return c.seq == differs->second; });
      const bool by_all = at != comm.calls.end() && at->issues.size() >= comm.heard;
      told = by_all || (call != nullptr && at != comm.calls.end() && call->seq > at->seq);
      if (told) call = &*at;
    }
    if (call == nullptr) continue;
    out.push_back(SuspectOf(job, hash, comm, *call));
    out.back().told = told;
  }
  for (const auto& [hash, comm] : job.trace().calls().communicators()) {
    const IssuedCalls::Call* call = WaitedFor(job, comm, true, now_ns);
    if (call == nullptr) call = HeldBackByAHalt(job, comm, now_ns);
    if (call != nullptr) out.push_back(SuspectOf(job, hash, comm, *call));
  }
  return out;
}

}  // namespace gpuprobe::analysis
