#include "collector/analysis/hangs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "collector/analysis/hang_evidence.h"
#include "collector/analysis/names.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::IssuedCalls;
using model::ProcessModel;

// Work launched before a collective excuses it for this many times the limit: longer than a kernel runs, and
// its record may have been lost.
constexpr uint64_t kExcuses = 5;
// How long before the limit to ask for records that may be held back: a process hears a request within two
// and a half seconds (its batches are two seconds apart, and it flushes twice a second).
constexpr uint64_t kAskBeforeNs = 5'000'000'000;
// The ranks of one call report it within this time of each other.
constexpr uint64_t kHeardWithinNs = 3'000'000'000;

// False only if the call is known to have put nothing on the device: the rank does not wait in it.
bool LaunchedSomething(const ProcessModel& process, const IssuedCalls::Issue& issue) {
  if (issue.plan == 0) return false;
  if (!process.collectives().LaunchedNothing(issue.plan)) return true;
  return !HeardAllLaunches(process) || process.progress().last_left_out_ns > issue.issue_ns;
}

CallShape ShapeOf(const model::JobModel& job, const IssuedCalls::Call& call, uint32_t signature) {
  const IssuedCalls::Signature& s = call.signatures[signature];
  CallShape shape{
      .op = job.Name(s.op), .count = s.count, .datatype = job.Name(s.datatype), .bytes = 0, .root = s.root};
  for (const IssuedCalls::Issue& issue : call.issues) {
    if (issue.signature == signature) shape.bytes = s.count * issue.element_bytes;
  }
  return shape;
}

// The call and its communicator; the first signature's shape.
Hang Begin(const model::JobModel& job, uint64_t hash, const IssuedCalls::Communicator& comm,
           const IssuedCalls::Call& call) {
  Hang hang;
  hang.comm = CommName(hash);
  hang.comm_ranks = static_cast<int>(comm.ranks.size());
  hang.seq = call.seq;
  hang.shape = ShapeOf(job, call, 0);
  for (const IssuedCalls::RankState& state : comm.ranks)
    hang.not_heard += state.process == IssuedCalls::kNoProcess ? 1 : 0;
  for (const IssuedCalls::Issue& issue : call.issues) {
    const uint32_t index = comm.ranks[static_cast<size_t>(issue.comm_rank)].process;
    const ProcessModel& process = *job.processes()[index];
    const v1::Communicator* known = process.FindCommunicator(process.progress().last_call.comm);
    if (known != nullptr && known->hash() == hash && known->name() != 0) {
      hang.comm_name = process.String(known->name());
      break;
    }
  }
  return hang;
}

class Search {
 public:
  Search(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns)
      : job_(job), now_ns_(now_ns), after_ns_(after_ns) {}

  // As HangsOf has it.
  const std::set<uint32_t>& held_back() const { return held_back_; }

  std::vector<Hang> Run() {
    Mismatched();
    for (const auto& [hash, comm] : job_.issued().communicators()) Look(hash, comm);
    for (HangSuspect& s : TransfersThatWait(job_, Since(now_ns_, after_ns_))) Add(std::move(s));
    for (HangSuspect& s : ReplaysThatWait(job_, Since(now_ns_, after_ns_))) Add(std::move(s));
    for (size_t i = 0; i < suspects_.size(); ++i) {
      for (const HangParty& party : suspects_[i].what.waiting) NoteWait(party, i);
      for (const HangParty& party : suspects_[i].what.behind) NoteWait(party, i);
    }
    for (size_t i = 0; i < suspects_.size(); ++i) Judge(i);
    // A wait for a rank that waits in another collective is reported as that collective. In a circle, all are
    // reported.
    std::vector<Hang> hangs = std::move(mismatches_);
    const bool any_first = std::any_of(suspects_.begin(), suspects_.end(),
                                       [&](const Suspect& s) { return s.eligible && s.behind.empty(); });
    for (const Suspect& s : suspects_) {
      if (!s.eligible || (any_first && !s.behind.empty())) continue;
      const bool behind_innocent =
          std::any_of(s.behind.begin(), s.behind.end(), [&](size_t at) { return !suspects_[at].eligible; });
      if (!behind_innocent) hangs.push_back(Describe(s));
    }
    std::stable_sort(hangs.begin(), hangs.end(),
                     [](const Hang& a, const Hang& b) { return a.waiting_ns > b.waiting_ns; });
    return hangs;
  }

 private:
  struct Suspect {
    HangSuspect what;
    bool eligible = false;
    bool earlier_work = false;
    std::vector<size_t> behind;    // other suspects that one of its processes waits in
    std::vector<uint32_t> halted;  // its processes that cannot run, and made the others wait for the limit
    uint64_t now_ns = 0;
    uint64_t since_ns = UINT64_MAX;
    uint64_t newest_ns = 0;  // when the last rank issued it
    bool all_issued() const { return what.missing.empty() && what.launched_nothing.empty(); }
  };

  const ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }

  // The call that the ranks wait in, as far as is known: some have not issued it; or it launched nothing on
  // some; or it is the first that is not known to be over.
  const IssuedCalls::Call* WaitedFor(const IssuedCalls::Communicator& comm) const {
    uint64_t issued_by_all = UINT64_MAX;
    bool left_out = false;  // calls, on request, on a rank that issued as few as any
    for (const IssuedCalls::RankState& state : comm.ranks) {
      if (state.process == IssuedCalls::kNoProcess || state.next_seq > issued_by_all) continue;
      const bool leaves_out = Of(state.process).progress().last_left_out_ns != 0;
      left_out = leaves_out || (left_out && state.next_seq == issued_by_all);
      // A call that has ended was issued by all, even if a halted rank will never report it.
      issued_by_all = state.next_seq;
      if (FindHalt(Of(state.process), now_ns_) != nullptr)
        issued_by_all = std::max(issued_by_all, comm.finished);
    }
    const IssuedCalls::Call* first = nullptr;
    for (const IssuedCalls::Call& call : comm.calls) {
      if (call.seq < comm.finished) continue;
      size_t launched = 0;
      bool since_last_wait = false;
      bool missing_waits_here = false;
      for (const IssuedCalls::Issue& issue : call.issues) {
        const IssuedCalls::RankState& rank = comm.ranks[static_cast<size_t>(issue.comm_rank)];
        if (!LaunchedSomething(Of(rank.process), issue)) continue;
        ++launched;
        if (!SinceLastWait(Of(rank.process), issue.issue_ns)) continue;
        since_last_wait = true;
        missing_waits_here = missing_waits_here || rank.next_seq == issued_by_all;
      }
      if (launched == 0) continue;
      const bool not_by_all = call.seq == issued_by_all || (left_out && call.seq > issued_by_all);
      if (launched < call.issues.size() || not_by_all) return first != nullptr ? first : &call;
      // All issued it. When a rank that issued nothing after it waits in it, the others are ahead of that.
      if (since_last_wait && (missing_waits_here || comm.calls.back().seq < issued_by_all) &&
          first == nullptr)
        first = &call;
    }
    return first;
  }

  void Look(uint64_t hash, const IssuedCalls::Communicator& comm) {
    const IssuedCalls::Call* call = WaitedFor(comm);
    if (call == nullptr || mismatched_.contains(hash)) return;
    HangSuspect s;
    for (const IssuedCalls::Issue& issue : call->issues) {
      const uint32_t process = comm.ranks[static_cast<size_t>(issue.comm_rank)].process;
      const HangParty party{.process = process, .issue_ns = issue.issue_ns, .launch = {.plan = issue.plan}};
      (LaunchedSomething(Of(process), issue) ? s.waiting : s.launched_nothing).push_back(party);
    }
    for (const IssuedCalls::RankState& state : comm.ranks) {
      if (state.process != IssuedCalls::kNoProcess && state.next_seq <= call->seq)
        s.missing.push_back(state.process);
    }
    s.describe = [this, hash, &comm, call] { return Begin(job_, hash, comm, *call); };
    Add(std::move(s));
  }

  void Add(HangSuspect what) {
    if (what.waiting.empty()) return;
    Suspect& s = suspects_.emplace_back();
    s.what = std::move(what);
    bool anybody_there = false;
    uint64_t last_there_ns = 0;
    for (const HangParty& party : s.what.waiting) {
      s.since_ns = std::min(s.since_ns, party.issue_ns);
      s.newest_ns = std::max(s.newest_ns, party.issue_ns);
      anybody_there = anybody_there || !Ended(Of(party.process));
      last_there_ns = std::max(last_there_ns, LastHeardNs(Of(party.process)));
    }
    for (const HangParty& party : s.what.launched_nothing)
      s.newest_ns = std::max(s.newest_ns, party.issue_ns);
    // One process is missing, and each of the others waits for it on its own.
    if (s.what.transfer && !s.what.missing.empty()) s.newest_ns = s.since_ns;
    // Nobody waits any more: what counts is how long they did.
    s.now_ns = anybody_there ? now_ns_ : std::min(now_ns_, last_there_ns);
  }

  void Judge(size_t index) {
    Suspect& s = suspects_[index];
    // A rank killed in the middle of a wait does not report its last two seconds; the observations of it do.
    const uint64_t heard_ns = s.now_ns;
    for (const HangParty& party : s.what.waiting)
      s.now_ns = std::max(s.now_ns, Of(party.process).condition().last_ns());
    s.halted = HaltedThatOthersWaitFor(s);
    if (s.halted.empty()) s.now_ns = heard_ns;
    if (!s.halted.empty()) {
      s.eligible = true;
      return;
    }
    const uint64_t waited_ns = Since(s.now_ns, std::max(s.newest_ns, LastHaltOfMissing(s)));
    if (waited_ns < (s.all_issued() ? AskAfterNs() : after_ns_)) return;
    s.eligible = s.all_issued() ? NothingExplainsIt(s, index) : NobodyWorksOnIt(s, index);
  }

  // While a rank could not run its silence was explained; after that it has the limit anew to catch up.
  uint64_t LastHaltOfMissing(const Suspect& s) const {
    uint64_t until_ns = 0;
    for (const uint32_t process : s.what.missing) {
      for (const model::ProcessCondition::Halt& halt : Of(process).condition().halts()) {
        if (halt.reason != model::ProcessCondition::Reason::kEnded && halt.until_ns <= s.now_ns)
          until_ns = std::max(until_ns, halt.until_ns);
      }
    }
    return until_ns;
  }

  std::vector<uint32_t> HaltedThatOthersWaitFor(const Suspect& s) const {
    std::set<uint32_t> processes(s.what.missing.begin(), s.what.missing.end());
    for (const HangParty& party : s.what.waiting) processes.insert(party.process);
    for (const HangParty& party : s.what.launched_nothing) processes.insert(party.process);
    std::vector<uint32_t> halted;
    for (const uint32_t process : processes) {
      const model::ProcessCondition::Halt* halt = FindHalt(Of(process), s.now_ns);
      if (halt == nullptr) continue;
      const bool waited_for =
          std::any_of(s.what.waiting.begin(), s.what.waiting.end(), [&](const HangParty& party) {
            return FindHalt(Of(party.process), s.now_ns) == nullptr &&
                   Since(s.now_ns, std::max(party.issue_ns, halt->since_ns)) >= after_ns_;
          });
      if (waited_for) halted.push_back(process);
    }
    return halted;
  }

  void NoteWait(const HangParty& party, size_t index) {
    if (party.launch.correlation != 0) {
      replays_of_[party.process].emplace_back(party.launch.correlation, index);
    } else {
      waits_in_[{party.process, party.launch.plan}].push_back(index);
    }
  }

  static void AddBehind(size_t index, size_t other, Suspect& s) {
    if (other != index && std::find(s.behind.begin(), s.behind.end(), other) == s.behind.end())
      s.behind.push_back(other);
  }

  void AddBehind(size_t index, uint32_t process, uint64_t plan, Suspect& s) const {
    const auto found = waits_in_.find({process, plan});
    if (found == waits_in_.end()) return;
    for (const size_t other : found->second) AddBehind(index, other, s);
  }

  // Suspects that the process waits in by what it launched before. True if it launched something else, too.
  bool AddBehind(size_t index, uint32_t process, const LaunchedBefore& launched, Suspect& s) const {
    for (const uint64_t plan : launched.plans) AddBehind(index, process, plan, s);
    const auto found = replays_of_.find(process);
    if (found == replays_of_.end()) return !launched.others.empty();
    // A graph of which some kernel has ended is not among the launches that have not.
    for (const auto& [correlation, other] : found->second) {
      if (launched.correlation == 0 || correlation < launched.correlation) AddBehind(index, other, s);
    }
    return std::any_of(launched.others.begin(), launched.others.end(), [&](uint64_t correlation) {
      return std::none_of(found->second.begin(), found->second.end(),
                          [&](const auto& replay) { return replay.first == correlation; });
    });
  }

  const LaunchedBefore& Before(uint32_t process, LaunchOf from) {
    const auto [at, added] = before_.try_emplace({process, from});
    if (added) at->second = LaunchesBefore(Of(process), from);
    return at->second;
  }

  // Some ranks have not issued it: whether those have done nothing for so long.
  bool NobodyWorksOnIt(Suspect& s, size_t index) {
    for (const uint32_t missing : s.what.missing) {
      const ProcessModel& process = Of(missing);
      const HostProgress& p = process.progress();
      // Its calls may have been left out on request, or lost: then its sends and receives are not counted
      // right.
      // A rank is in a recorded step a moment later than another one is.
      if (p.last_left_out_ns > s.since_ns + kHeardWithinNs) return false;
      if (s.what.transfer && !HeardAllLaunches(process)) return false;
      const uint64_t alive_ns = std::max(
          {p.last_launch_ns, p.last_device_end_ns, p.last_io_ns, p.last_call.return_ns, p.last_left_out_ns});
      if (Since(std::min(NowOf(process, now_ns_), s.now_ns), alive_ns) < after_ns_) return false;
      if (IsGone(process, s.now_ns)) continue;
      if (AddBehind(index, missing, Before(missing, {}), s) && s.behind.empty()) return false;
    }
    // A late launch would have been reported by now.
    return std::all_of(
        s.what.launched_nothing.begin(), s.what.launched_nothing.end(), [&](const HangParty& party) {
          return Since(std::min(NowOf(Of(party.process), now_ns_), s.now_ns), s.newest_ns) >= after_ns_;
        });
  }

  // All ranks issued it: whether it could have begun so long ago.
  bool NothingExplainsIt(Suspect& s, size_t index) {
    uint64_t ready_ns = 0;
    uint64_t horizon_ns = s.now_ns;
    std::vector<uint32_t> held_back;
    for (const HangParty& party : s.what.waiting) {
      const ProcessModel& process = Of(party.process);
      if (!process.has_gpu_times()) return false;
      if (process.progress().last_left_out_ns > s.since_ns) return false;
      const LaunchedBefore& launched = Before(party.process, party.launch);
      if (AddBehind(index, party.process, launched, s)) held_back.push_back(party.process);
      // A group of transfers ends as a whole: it is reported by those whose other side is missing.
      if (s.what.transfer) AddBehind(index, party.process, party.launch.plan, s);
      ready_ns = std::max({ready_ns, party.issue_ns, launched.end_ns});
      horizon_ns = std::min(horizon_ns, NowOf(process, now_ns_));
    }
    if (s.what.transfer)
      std::erase_if(s.behind, [&](size_t at) { return IsAnotherOfTheGroup(s, suspects_[at]); });
    s.earlier_work = !held_back.empty();
    if (Since(horizon_ns, ready_ns) >= AskAfterNs()) held_back_.insert(held_back.begin(), held_back.end());
    return Since(horizon_ns, ready_ns) >= (s.earlier_work ? kExcuses * after_ns_ : after_ns_);
  }

  // Both are issued by both sides and run in one plan: neither explains the other.
  static bool IsAnotherOfTheGroup(const Suspect& s, const Suspect& other) {
    if (!other.all_issued()) return false;
    return std::any_of(s.what.waiting.begin(), s.what.waiting.end(), [&](const HangParty& party) {
      return std::any_of(other.what.waiting.begin(), other.what.waiting.end(), [&](const HangParty& p) {
        return p.process == party.process && p.launch == party.launch;
      });
    });
  }

  uint64_t AskAfterNs() const { return after_ns_ - std::min(kAskBeforeNs, after_ns_ / 2); }

  void AddRank(const Suspect& s, uint32_t process, HangRank::State state, Hang& hang) const {
    if (hang.ranks.size() >= Hang::kMaxRanks) {
      ++hang.ranks_left_out;
      return;
    }
    hang.ranks.push_back(DescribeRank(Of(process), state, s.now_ns));
    hang.ranks.back().load = HostLoadOf(Of(process), s.since_ns);
    if (s.what.describe_rank != nullptr) s.what.describe_rank(process, s.now_ns, hang.ranks.back());
  }

  void AddWaiting(const Suspect& s, Hang& hang) const {
    for (const HangParty& party : s.what.waiting) {
      if (hang.waiting.size() == Hang::kMaxRanks) return;
      if (std::binary_search(s.halted.begin(), s.halted.end(), party.process)) continue;
      const HangRank r = DescribeRank(Of(party.process), HangRank::State::kWaiting, s.now_ns);
      hang.waiting.push_back({.label = r.label, .host = r.host, .pid = r.pid});
    }
  }

  Hang Describe(const Suspect& s) const {
    Hang hang = s.what.describe();
    hang.since_ns = s.since_ns;
    hang.waiting_ns = Since(s.now_ns, s.since_ns);
    hang.earlier_work = s.earlier_work;
    AddWaiting(s, hang);
    hang.issued = s.what.transfer
                      ? static_cast<int>(s.what.waiting.size())
                      : hang.comm_ranks - hang.not_heard - static_cast<int>(s.what.missing.size()) -
                            static_cast<int>(s.what.launched_nothing.size());
    if (!s.halted.empty()) {
      hang.kind = Hang::Kind::kMissingRank;
      hang.earlier_work = false;
      hang.issued = static_cast<int>(
          std::count_if(s.what.waiting.begin(), s.what.waiting.end(), [&](const HangParty& party) {
            return !std::binary_search(s.halted.begin(), s.halted.end(), party.process);
          }));
      for (const uint32_t process : s.halted) AddRank(s, process, HangRank::State::kHalted, hang);
    } else if (s.all_issued()) {
      hang.kind = Hang::Kind::kAllIssued;
      hang.culprit_known = false;
      for (const HangParty& party : s.what.waiting)
        AddRank(s, party.process, HangRank::State::kWaiting, hang);
    } else {
      hang.kind = Hang::Kind::kMissingRank;
      for (const uint32_t process : s.what.missing) AddRank(s, process, HangRank::State::kNotIssued, hang);
      for (const HangParty& party : s.what.launched_nothing)
        AddRank(s, party.process, HangRank::State::kLaunchedNothing, hang);
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
      // With more ranks still to report, the majority may be another.
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
    Hang hang = Begin(job_, m.hash, comm, call);
    hang.kind = Hang::Kind::kMismatch;
    hang.culprit_known = std::count(votes.begin(), votes.end(), votes[most]) == 1;
    hang.shape = ShapeOf(job_, call, most);
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
      hang.ranks.push_back(DescribeRank(Of(comm.ranks[static_cast<size_t>(issue.comm_rank)].process),
                                        HangRank::State::kIssuedOtherwise, now_ns_));
      hang.ranks.back().shape = ShapeOf(job_, call, issue.signature);
    }
    return hang;
  }

  const model::JobModel& job_;
  const uint64_t now_ns_;
  const uint64_t after_ns_;
  std::set<uint32_t> held_back_;
  std::vector<Suspect> suspects_;
  std::vector<Hang> mismatches_;
  std::map<uint64_t, size_t> mismatched_;  // communicator -> index into mismatches_
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, std::vector<size_t>> waits_in_;  // process, plan
  std::map<uint32_t, std::vector<std::pair<uint64_t, size_t>>> replays_of_;  // process: correlation, suspect
  std::map<std::pair<uint32_t, LaunchOf>, LaunchedBefore> before_;           // process
};

}  // namespace

std::vector<Hang> HangsOf(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns,
                          std::vector<uint32_t>* held_back) {
  Search search(job, now_ns, after_ns);
  std::vector<Hang> hangs = search.Run();
  if (held_back != nullptr) held_back->assign(search.held_back().begin(), search.held_back().end());
  // Independent of the order in which the ranks reported.
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
