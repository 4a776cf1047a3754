#include "collector/analysis/hangs/hang_mismatches.h"

#include <algorithm>
#include <map>

#include "collector/analysis/hangs/hang_calls.h"
#include "collector/analysis/hangs/hang_evidence.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/trust/duplicate_ranks.h"

namespace gpuprobe::analysis {
namespace {

using model::IssuedCalls;

const model::ProcessModel& ProcessOf(const model::JobModel& job, const IssuedCalls::Issue& issue,
                                     const IssuedCalls::Communicator& comm) {
  return *job.processes()[comm.ranks[static_cast<size_t>(issue.comm_rank)].process];
}

// The signature that most ranks used is taken for the right one, unless two are used equally often.
Hang Describe(const model::JobModel& job, const IssuedCalls::Mismatched& m,
              const IssuedCalls::Communicator& comm, bool over, uint64_t oldest_ns, uint64_t now_ns) {
  const IssuedCalls::Call& call = m.call;
  std::vector<int> votes(call.signatures.size());
  for (const IssuedCalls::Issue& issue : call.issues) ++votes[issue.signature];
  const auto most = static_cast<uint32_t>(std::max_element(votes.begin(), votes.end()) - votes.begin());
  Hang hang = HangInCall(job, m.hash, comm, call);
  hang.kind = Hang::Kind::kMismatch;
  hang.culprit_known = std::count(votes.begin(), votes.end(), votes[most]) == 1;
  hang.shape = ShapeOfCall(job, call, most);
  hang.issued = votes[most];
  hang.since_ns = oldest_ns;
  hang.over = over;
  hang.waiting_ns = hang.over ? 0 : Since(now_ns, oldest_ns);
  for (const IssuedCalls::Issue& issue : call.issues) {
    if (issue.signature == most && hang.culprit_known) continue;
    if (hang.ranks.size() >= Hang::kMaxRanks) {
      ++hang.ranks_left_out;
      continue;
    }
    const model::ProcessModel& process = ProcessOf(job, issue, comm);
    hang.ranks.push_back(DescribeRank(process, HangRank::State::kIssuedOtherwise, now_ns));
    hang.ranks.back().label = ProcessLabels(job).Of(process);
    hang.ranks.back().shape = ShapeOfCall(job, call, issue.signature);
  }
  return hang;
}

// Not of a program that was started again with the same communicator: others are in its ranks' places.
bool IssuersAreKnown(const model::JobModel& job, const IssuedCalls::Call& call,
                     const IssuedCalls::Communicator& comm) {
  return !call.issues.empty() &&
         std::all_of(call.issues.begin(), call.issues.end(), [&](const IssuedCalls::Issue& issue) {
           const auto rank = static_cast<size_t>(issue.comm_rank);
           return rank < comm.ranks.size() && comm.ranks[rank].process < job.processes().size();
         });
}

bool EndedWell(const model::JobModel& job, const IssuedCalls::Call& call,
               const IssuedCalls::Communicator& comm) {
  return std::all_of(call.issues.begin(), call.issues.end(), [&](const IssuedCalls::Issue& issue) {
    return ProcessOf(job, issue, comm).end_state() == model::EndState::kSaidBye;
  });
}

bool AnyRuns(const model::JobModel& job, const IssuedCalls::Call& call,
             const IssuedCalls::Communicator& comm) {
  return std::any_of(call.issues.begin(), call.issues.end(), [&](const IssuedCalls::Issue& issue) {
    return ProcessOf(job, issue, comm).end_state() == model::EndState::kConnected;
  });
}

// `first`: communicators of which one is known, by their places in `out`.
void Add(const model::JobModel& job, const IssuedCalls::Mismatched& m, const IssuedCalls::Communicator& comm,
         uint64_t now_ns, uint64_t after_ns, std::map<uint64_t, size_t>& first, Mismatches& out) {
  const auto known = first.find(m.hash);
  if (known != first.end()) ++out.hangs[known->second].mismatches_after;
  uint64_t newest_ns = 0;
  uint64_t oldest_ns = UINT64_MAX;
  for (const IssuedCalls::Issue& issue : m.call.issues) {
    newest_ns = std::max(newest_ns, issue.issue_ns);
    oldest_ns = std::min(oldest_ns, issue.issue_ns);
  }
  const bool by_all = m.call.issues.size() >= comm.heard;
  // At level calls it is not known of the newest call whether it is over.
  const bool traced = m.call.issues.front().plan == IssuedCalls::kPlanNotKnown;
  const bool over = m.call.seq < comm.finished || (traced && EndedWell(job, m.call, comm));
  if (traced && !over && by_all && Since(now_ns, newest_ns) < after_ns && AnyRuns(job, m.call, comm)) return;
  if (known != first.end()) {
    const bool hangs = !over && by_all && Since(now_ns, newest_ns) >= after_ns;
    if (!hangs || !out.first.try_emplace(m.hash, m.call.seq).second) return;
  } else {
    // With more ranks still to report, the majority may be another.
    if (!by_all && Since(now_ns, newest_ns) < thresholds::kHangHeardWithinNs) return;
    first[m.hash] = out.hangs.size();
    if (!over) out.first[m.hash] = m.call.seq;
  }
  out.hangs.push_back(Describe(job, m, comm, over, oldest_ns, now_ns));
}

}  // namespace

Mismatches FindMismatches(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns) {
  Mismatches out;
  std::map<uint64_t, size_t> first;  // communicator -> index into out.hangs
  for (const IssuedCalls* calls : {&job.issued(), &job.trace().calls()}) {
    for (const IssuedCalls::Mismatched& m : calls->Mismatches()) {
      const auto comm = calls->communicators().find(m.hash);
      if (comm != calls->communicators().end() && IssuersAreKnown(job, m.call, comm->second))
        Add(job, m, comm->second, now_ns, after_ns, first, out);
    }
  }
  return out;
}

}  // namespace gpuprobe::analysis
