#include "collector/analysis/hangs.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/names.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::IssuedCalls;
using model::ProcessModel;

// A connected process says something every two seconds, whatever it does.
constexpr uint64_t kSilentNs = 10'000'000'000;
// A launch that so many later ones have overtaken is not what a collective waits for: it has no record (lost,
// or of a kind that is not recorded), or runs beside everything else.
constexpr size_t kOvertaken = 256;
// Work launched before a collective excuses it for so many times the limit: CUPTI holds the records of work
// that has ended back while a kernel in the same buffer runs, so that it may have ended long ago.
constexpr uint64_t kExcuses = 5;
// Ranks of one call are heard within this time of each other.
constexpr uint64_t kHeardWithinNs = 3'000'000'000;

uint64_t LastHeardNs(const ProcessModel& process) {
  return std::max(process.totals().last_clock_ns, process.totals().last_ns);
}

bool Ended(const ProcessModel& process) { return process.end_state() != model::EndState::kConnected; }

uint64_t Since(uint64_t now_ns, uint64_t then_ns) { return now_ns > then_ns ? now_ns - then_ns : 0; }

// It ended before the end of what is looked at: when the job is over, every process has ended.
bool IsGone(const ProcessModel& process, uint64_t now_ns) {
  return Ended(process) && Since(now_ns, LastHeardNs(process)) > kSilentNs;
}

// Whether everything that its threads launched and called was heard, as far as it says.
bool HeardAllLaunches(const ProcessModel& process) {
  const ProcessModel::Totals& totals = process.totals();
  const v1::DetailLevel level = totals.self.detail_level();
  if (totals.launches == 0 || totals.batches_missing != 0) return false;
  if (process.hello().timing_source() == v1::TIMING_SOURCE_NONE) return false;
  if (level != v1::DETAIL_LEVEL_FULL && level != v1::DETAIL_LEVEL_GRAPHS) return false;
  const auto lost = [&](v1::LossReason reason) {
    const auto found = totals.losses.find(reason);
    return found != totals.losses.end() && found->second != 0;
  };
  return !lost(v1::LOSS_EVENT_RING_FULL) && !lost(v1::LOSS_THREAD_SLOTS_FULL) &&
         !lost(v1::LOSS_SEND_QUEUE_FULL) && !lost(v1::LOSS_NOT_CONNECTED) && !lost(v1::LOSS_AT_EXIT);
}

// False only if it is known that nothing on the device came of the call: the rank does not wait in it.
bool LaunchedSomething(const ProcessModel& process, const IssuedCalls::Issue& issue) {
  if (issue.plan == 0) return false;
  if (!process.collectives().LaunchedNothing(issue.plan)) return true;
  return !HeardAllLaunches(process) || process.progress().last_left_out_ns > issue.issue_ns;
}

// The launches of a process around one collective.
struct Launched {
  uint64_t call_ns = 0;                 // launch of the collective, 0: not found
  uint64_t earlier_end_ns = 0;          // when the last work launched before it ended
  bool earlier_unfinished = false;      // work launched before it has not
  std::vector<uint64_t> earlier_plans;  // other collectives before it that have not
};

// Of everything that is known when `plan` is 0. What was launched before the main thread last waited for the
// device and came back counts as ended, whether its record has come or not.
Launched LaunchesBefore(const ProcessModel& process, uint64_t plan) {
  Launched out;
  uint64_t call_correlation = UINT64_MAX;
  if (plan != 0) {
    process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
      if (slot.plan == plan && slot.correlation < call_correlation) {
        call_correlation = slot.correlation;
        out.call_ns = slot.launch_ns;
      }
    });
  }
  std::vector<uint64_t> ended;
  std::vector<std::pair<uint64_t, uint64_t>> unfinished;  // correlation, plan
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (slot.matched) ended.push_back(slot.correlation);
    if (slot.correlation >= call_correlation || !slot.launched) return;
    if (slot.matched) {
      out.earlier_end_ns = std::max(out.earlier_end_ns, slot.end_ns);
    } else if (slot.launch_ns > process.progress().last_wait_end_ns) {
      unfinished.emplace_back(slot.correlation, slot.plan);
    }
  });
  uint64_t overtaken = 0;
  if (ended.size() > kOvertaken) {
    const auto at = ended.end() - static_cast<ptrdiff_t>(kOvertaken);
    std::nth_element(ended.begin(), at, ended.end());
    overtaken = *at;
  }
  for (const auto& [correlation, other_plan] : unfinished) {
    if (correlation < overtaken) continue;
    if (other_plan == 0) {
      out.earlier_unfinished = true;
    } else {
      out.earlier_plans.push_back(other_plan);
    }
  }
  return out;
}

uint64_t LaunchesAfter(const ProcessModel& process, uint64_t time_ns) {
  uint64_t launches = 0;
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (slot.launched && slot.launch_ns > time_ns) ++launches;
  });
  return launches;
}

class Search {
 public:
  Search(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns)
      : job_(job), now_ns_(now_ns), after_ns_(after_ns) {}

  std::vector<Hang> Run() {
    Mismatched();
    for (const auto& [hash, comm] : job_.issued().communicators()) Look(hash, comm);
    // What waits for a rank that waits in another collective is told by that one. In a circle all are told.
    std::vector<Hang> hangs = std::move(mismatches_);
    const bool any_first = std::any_of(suspects_.begin(), suspects_.end(),
                                       [&](const Suspect& s) { return s.eligible && s.behind.empty(); });
    for (const Suspect& s : suspects_) {
      if (!s.eligible || (any_first && !s.behind.empty())) continue;
      const bool behind_innocent =
          std::any_of(s.behind.begin(), s.behind.end(), [&](uint64_t hash) { return !IsEligible(hash); });
      if (!behind_innocent) hangs.push_back(Describe(s));
    }
    std::stable_sort(hangs.begin(), hangs.end(),
                     [](const Hang& a, const Hang& b) { return a.waiting_ns > b.waiting_ns; });
    return hangs;
  }

 private:
  struct Suspect {
    uint64_t hash = 0;
    const IssuedCalls::Communicator* comm = nullptr;
    const IssuedCalls::Call* call = nullptr;
    bool eligible = false;
    bool earlier_work = false;
    std::vector<size_t> missing;           // ranks of the communicator
    std::vector<size_t> launched_nothing;  // they issued it
    std::vector<size_t> waiting;
    std::vector<uint64_t> behind;  // communicators whose open call one of its ranks waits in
    uint64_t now_ns = 0;
    uint64_t since_ns = 0;
    uint64_t newest_ns = 0;  // when the last rank issued it
  };

  const ProcessModel& Process(const IssuedCalls::Communicator& comm, size_t rank) const {
    return *job_.processes()[comm.ranks[rank].process];
  }

  // Issued since the rank's main thread last came back from waiting for the device.
  static bool SinceLastWait(const ProcessModel& process, const IssuedCalls::Issue& issue) {
    return issue.issue_ns > process.progress().last_wait_end_ns;
  }

  // The call that the ranks wait in, as far as can be told: some have not issued it; or it launched nothing
  // on some; or it is the first that is not known to be over.
  const IssuedCalls::Call* WaitedFor(const IssuedCalls::Communicator& comm) const {
    uint64_t issued_by_all = UINT64_MAX;
    for (const IssuedCalls::RankState& state : comm.ranks) {
      if (state.process != IssuedCalls::kNoProcess) issued_by_all = std::min(issued_by_all, state.next_seq);
    }
    const IssuedCalls::Call* first = nullptr;
    for (const IssuedCalls::Call& call : comm.calls) {
      if (call.seq < comm.finished) continue;
      size_t launched = 0;
      bool since_last_wait = false;
      bool missing_waits_here = false;
      for (const IssuedCalls::Issue& issue : call.issues) {
        const auto rank = static_cast<size_t>(issue.comm_rank);
        if (!LaunchedSomething(Process(comm, rank), issue)) continue;
        ++launched;
        if (!SinceLastWait(Process(comm, rank), issue)) continue;
        since_last_wait = true;
        missing_waits_here = missing_waits_here || comm.ranks[rank].next_seq == issued_by_all;
      }
      if (launched == 0) continue;
      if (launched < call.issues.size() || call.seq == issued_by_all) return first != nullptr ? first : &call;
      // All issued it. When a rank that issued nothing after it waits in it, the others are ahead of that.
      if (since_last_wait && (missing_waits_here || comm.calls.back().seq < issued_by_all) &&
          first == nullptr)
        first = &call;
    }
    return first;
  }

  bool IsEligible(uint64_t hash) const {
    return std::any_of(suspects_.begin(), suspects_.end(),
                       [&](const Suspect& s) { return s.hash == hash && s.eligible; });
  }

  // How far the time has come that a process is known to have lived through without a sign of life.
  uint64_t NowOf(const ProcessModel& process) const {
    const uint64_t heard_ns = LastHeardNs(process);
    return Ended(process) || Since(now_ns_, heard_ns) > kSilentNs ? now_ns_ : std::min(now_ns_, heard_ns);
  }

  // Of the process's collectives that have not ended, the communicators.
  std::vector<uint64_t> OpenOf(uint32_t process, const std::vector<uint64_t>& plans) {
    if (!plans_known_) {
      plans_known_ = true;
      for (const auto& [hash, comm] : job_.issued().communicators()) {
        const IssuedCalls::Call* call = WaitedFor(comm);
        if (call == nullptr) continue;
        for (const IssuedCalls::Issue& issue : call->issues) {
          if (issue.plan != 0)
            open_plans_[{comm.ranks[static_cast<size_t>(issue.comm_rank)].process, issue.plan}] = hash;
        }
      }
    }
    std::vector<uint64_t> out;
    for (const uint64_t plan : plans) {
      const auto found = open_plans_.find({process, plan});
      if (found != open_plans_.end()) out.push_back(found->second);
    }
    return out;
  }

  void Look(uint64_t hash, const IssuedCalls::Communicator& comm) {
    const IssuedCalls::Call* call = WaitedFor(comm);
    if (call == nullptr || mismatched_.contains(hash)) return;
    Suspect s;
    s.hash = hash;
    s.comm = &comm;
    s.call = call;
    uint64_t newest_ns = 0;
    uint64_t oldest_ns = UINT64_MAX;
    bool anybody_there = false;
    uint64_t last_there_ns = 0;
    for (const IssuedCalls::Issue& issue : call->issues) {
      const auto rank = static_cast<size_t>(issue.comm_rank);
      const bool waits = LaunchedSomething(Process(comm, rank), issue);
      (waits ? s.waiting : s.launched_nothing).push_back(rank);
      newest_ns = std::max(newest_ns, issue.issue_ns);
      if (!waits) continue;
      oldest_ns = std::min(oldest_ns, issue.issue_ns);
      anybody_there = anybody_there || !Ended(Process(comm, rank));
      last_there_ns = std::max(last_there_ns, LastHeardNs(Process(comm, rank)));
    }
    if (s.waiting.empty()) return;
    for (size_t rank = 0; rank < comm.ranks.size(); ++rank) {
      const IssuedCalls::RankState& state = comm.ranks[rank];
      if (state.process != IssuedCalls::kNoProcess && state.next_seq <= call->seq) s.missing.push_back(rank);
    }
    // Nobody waits any more: what counts is how long they did.
    s.now_ns = anybody_there ? now_ns_ : std::min(now_ns_, last_there_ns);
    s.since_ns = oldest_ns;
    if (Since(s.now_ns, newest_ns) < after_ns_) return;
    s.newest_ns = newest_ns;
    s.eligible = s.missing.empty() && s.launched_nothing.empty() ? NothingExplainsIt(s) : NobodyWorksOnIt(s);
    suspects_.push_back(std::move(s));
  }

  // Some ranks have not issued it: whether those have done nothing for so long.
  bool NobodyWorksOnIt(Suspect& s) {
    for (const size_t rank : s.missing) {
      const ProcessModel& process = Process(*s.comm, rank);
      const HostProgress& p = process.progress();
      // Its calls may have been left out on request.
      if (p.last_left_out_ns > s.since_ns) return false;
      const uint64_t alive_ns =
          std::max({p.last_launch_ns, p.last_device_end_ns, p.last_io_ns, p.last_call.return_ns});
      if (Since(std::min(NowOf(process), s.now_ns), alive_ns) < after_ns_) return false;
      if (IsGone(process, s.now_ns)) continue;
      const Launched launched = LaunchesBefore(process, 0);
      const uint32_t index = s.comm->ranks[rank].process;
      for (const uint64_t hash : OpenOf(index, launched.earlier_plans)) s.behind.push_back(hash);
      if (launched.earlier_unfinished && s.behind.empty()) return false;
    }
    // A launch that comes late would have been heard of by now.
    return std::all_of(s.launched_nothing.begin(), s.launched_nothing.end(), [&](size_t rank) {
      return Since(std::min(NowOf(Process(*s.comm, rank)), s.now_ns), s.newest_ns) >= after_ns_;
    });
  }

  // All ranks issued it: whether it could have begun so long ago.
  bool NothingExplainsIt(Suspect& s) {
    uint64_t ready_ns = 0;
    uint64_t horizon_ns = s.now_ns;
    for (const IssuedCalls::Issue& issue : s.call->issues) {
      const auto rank = static_cast<size_t>(issue.comm_rank);
      const ProcessModel& process = Process(*s.comm, rank);
      if (process.hello().timing_source() == v1::TIMING_SOURCE_NONE) return false;
      if (process.progress().last_left_out_ns > s.since_ns) return false;
      const Launched launched = LaunchesBefore(process, issue.plan);
      for (const uint64_t hash : OpenOf(s.comm->ranks[rank].process, launched.earlier_plans))
        s.behind.push_back(hash);
      s.earlier_work = s.earlier_work || launched.earlier_unfinished;
      ready_ns = std::max({ready_ns, issue.issue_ns, launched.earlier_end_ns});
      horizon_ns = std::min(horizon_ns, NowOf(process));
    }
    return Since(horizon_ns, ready_ns) >= (s.earlier_work ? kExcuses * after_ns_ : after_ns_);
  }

  CallShape ShapeOf(const IssuedCalls::Call& call, uint32_t signature) const {
    const IssuedCalls::Signature& s = call.signatures[signature];
    CallShape shape{.op = job_.Name(s.op),
                    .count = s.count,
                    .datatype = job_.Name(s.datatype),
                    .bytes = 0,
                    .root = s.root};
    for (const IssuedCalls::Issue& issue : call.issues) {
      if (issue.signature == signature) shape.bytes = s.count * issue.element_bytes;
    }
    return shape;
  }

  HangRank RankOf(const IssuedCalls::Communicator& comm, size_t rank, HangRank::State state,
                  uint64_t now_ns) const {
    const ProcessModel& process = Process(comm, rank);
    const v1::Identity& id = process.identity();
    const HostProgress& p = process.progress();
    HangRank r;
    const bool has_rank = id.rank() >= 0 && id.rank_source() != v1::RANK_SOURCE_NONE;
    if (has_rank) r.rank = id.rank();
    r.label = has_rank ? absl::StrCat(id.rank()) : absl::StrCat("pid ", id.pid());
    r.host = id.host();
    r.pid = id.pid();
    r.state = state;
    r.ended = IsGone(process, now_ns);
    if (p.last_call.issue_ns != 0) {
      r.last_op = process.String(p.last_call.op);
      const v1::Communicator* known = process.FindCommunicator(p.last_call.comm);
      r.last_comm = known == nullptr ? "unknown" : CommName(known->hash());
      r.last_seq = p.last_call.seq;
      r.last_issue_ago_ns = Since(now_ns, p.last_call.issue_ns);
      if (p.last_call.done_ns != 0) r.last_done_ago_ns = Since(now_ns, p.last_call.done_ns);
      r.launches_since = LaunchesAfter(process, p.last_call.return_ns);
    }
    if (p.last_launch_ns != 0) r.last_launch_ago_ns = Since(now_ns, p.last_launch_ns);
    const uint64_t silent_ns = Since(now_ns, LastHeardNs(process));
    if (!Ended(process) && silent_ns > kSilentNs) r.silent_ns = silent_ns;
    if (p.blocked_in != 0) r.blocked_in = process.String(p.blocked_in);
    r.open_range = absl::StrJoin(p.open_ranges, "/", [&](std::string* out, uint32_t name) {
      absl::StrAppend(out, process.String(name));
    });
    return r;
  }

  void AddRanks(const IssuedCalls::Communicator& comm, const std::vector<size_t>& ranks,
                HangRank::State state, uint64_t now_ns, Hang& hang) const {
    for (const size_t rank : ranks) {
      if (hang.ranks.size() >= Hang::kMaxRanks) {
        ++hang.ranks_left_out;
      } else {
        hang.ranks.push_back(RankOf(comm, rank, state, now_ns));
      }
    }
  }

  Hang Begin(uint64_t hash, const IssuedCalls::Communicator& comm, const IssuedCalls::Call& call) const {
    Hang hang;
    hang.comm = CommName(hash);
    hang.comm_ranks = static_cast<int>(comm.ranks.size());
    hang.seq = call.seq;
    for (const IssuedCalls::RankState& state : comm.ranks)
      hang.not_heard += state.process == IssuedCalls::kNoProcess ? 1 : 0;
    for (const IssuedCalls::Issue& issue : call.issues) {
      const ProcessModel& process = Process(comm, static_cast<size_t>(issue.comm_rank));
      const v1::Communicator* known = process.FindCommunicator(process.progress().last_call.comm);
      if (known != nullptr && known->hash() == hash && known->name() != 0) {
        hang.comm_name = process.String(known->name());
        break;
      }
    }
    return hang;
  }

  Hang Describe(const Suspect& s) const {
    Hang hang = Begin(s.hash, *s.comm, *s.call);
    hang.shape = ShapeOf(*s.call, 0);
    hang.since_ns = s.since_ns;
    hang.waiting_ns = Since(s.now_ns, s.since_ns);
    hang.issued = hang.comm_ranks - hang.not_heard - static_cast<int>(s.missing.size()) -
                  static_cast<int>(s.launched_nothing.size());
    hang.earlier_work = s.earlier_work;
    if (s.missing.empty() && s.launched_nothing.empty()) {
      hang.kind = Hang::Kind::kAllIssued;
      hang.culprit_known = false;
      AddRanks(*s.comm, s.waiting, HangRank::State::kWaiting, s.now_ns, hang);
    } else {
      hang.kind = Hang::Kind::kMissingRank;
      AddRanks(*s.comm, s.missing, HangRank::State::kNotIssued, s.now_ns, hang);
      AddRanks(*s.comm, s.launched_nothing, HangRank::State::kLaunchedNothing, s.now_ns, hang);
    }
    return hang;
  }

  // The first call of each communicator that its ranks issued differently: later ones follow from it.
  void Mismatched() {
    for (const IssuedCalls::Mismatched& m : job_.issued().Mismatches()) {
      const auto found = job_.issued().communicators().find(m.hash);
      if (found == job_.issued().communicators().end()) continue;
      const IssuedCalls::Communicator& comm = found->second;
      if (const auto known = mismatched_.find(m.hash); known != mismatched_.end()) {
        ++mismatches_[known->second].mismatches_after;
        continue;
      }
      uint64_t newest_ns = 0;
      uint64_t oldest_ns = UINT64_MAX;
      for (const IssuedCalls::Issue& issue : m.call.issues) {
        newest_ns = std::max(newest_ns, issue.issue_ns);
        oldest_ns = std::min(oldest_ns, issue.issue_ns);
      }
      // With more ranks still to be heard the majority may be another.
      if (m.call.issues.size() < comm.heard && Since(now_ns_, newest_ns) < kHeardWithinNs) continue;
      mismatched_[m.hash] = mismatches_.size();
      mismatches_.push_back(DescribeMismatch(m, comm, oldest_ns));
    }
  }

  Hang DescribeMismatch(const IssuedCalls::Mismatched& m, const IssuedCalls::Communicator& comm,
                        uint64_t oldest_ns) const {
    const IssuedCalls::Call& call = m.call;
    std::vector<int> votes(call.signatures.size());
    for (const IssuedCalls::Issue& issue : call.issues) ++votes[issue.signature];
    const auto most = static_cast<uint32_t>(std::max_element(votes.begin(), votes.end()) - votes.begin());
    Hang hang = Begin(m.hash, comm, call);
    hang.kind = Hang::Kind::kMismatch;
    hang.culprit_known = std::count(votes.begin(), votes.end(), votes[most]) == 1;
    hang.shape = ShapeOf(call, most);
    hang.issued = votes[most];
    hang.since_ns = oldest_ns;
    hang.over = call.seq < comm.finished;
    hang.waiting_ns = hang.over ? 0 : Since(now_ns_, oldest_ns);
    for (const IssuedCalls::Issue& issue : call.issues) {
      if (issue.signature == most && hang.culprit_known) continue;
      if (hang.ranks.size() >= Hang::kMaxRanks) {
        ++hang.ranks_left_out;
        continue;
      }
      hang.ranks.push_back(
          RankOf(comm, static_cast<size_t>(issue.comm_rank), HangRank::State::kIssuedOtherwise, now_ns_));
      hang.ranks.back().shape = ShapeOf(call, issue.signature);
    }
    return hang;
  }

  const model::JobModel& job_;
  const uint64_t now_ns_;
  const uint64_t after_ns_;
  std::vector<Suspect> suspects_;
  std::vector<Hang> mismatches_;
  std::map<uint64_t, size_t> mismatched_;  // communicator -> index into mismatches_
  bool plans_known_ = false;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, uint64_t> open_plans_;
};

}  // namespace

std::vector<Hang> HangsOf(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns) {
  std::vector<Hang> hangs = Search(job, now_ns, after_ns).Run();
  // In whatever order the ranks were heard.
  const auto place = [](const HangRank& r) { return std::tuple(r.rank.value_or(INT32_MAX), r.host, r.pid); };
  for (Hang& hang : hangs) {
    std::sort(hang.ranks.begin(), hang.ranks.end(),
              [&](const HangRank& a, const HangRank& b) { return place(a) < place(b); });
  }
  return hangs;
}

uint64_t JobEndNs(const model::JobModel& job) {
  uint64_t end_ns = 0;
  for (const auto& process : job.processes()) end_ns = std::max(end_ns, LastHeardNs(*process));
  return end_ns;
}

}  // namespace gpuprobe::analysis
