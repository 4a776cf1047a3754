#include "collector/analysis/hang_judge.h"

#include <algorithm>

#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::ProcessModel;

void AddIfNew(size_t index, size_t other, JudgedSuspect& s) {
  if (other != index && std::find(s.behind.begin(), s.behind.end(), other) == s.behind.end())
    s.behind.push_back(other);
}

// Both are issued by both sides and run in one plan: neither explains the other.
bool IsAnotherOfTheGroup(const JudgedSuspect& s, const JudgedSuspect& other) {
  if (!other.all_issued()) return false;
  return std::any_of(s.what.waiting.begin(), s.what.waiting.end(), [&](const HangParty& party) {
    return std::any_of(other.what.waiting.begin(), other.what.waiting.end(), [&](const HangParty& p) {
      return p.process == party.process && p.launch == party.launch;
    });
  });
}

// What follows from the suspect alone: since when its processes wait, and until when.
JudgedSuspect Prepare(const model::JobModel& job, HangSuspect what, uint64_t now_ns) {
  JudgedSuspect s;
  s.what = std::move(what);
  bool anybody_there = false;
  uint64_t last_there_ns = 0;
  for (const HangParty& party : s.what.waiting) {
    const ProcessModel& process = *job.processes()[party.process];
    s.since_ns = std::min(s.since_ns, party.issue_ns);
    s.newest_ns = std::max(s.newest_ns, party.issue_ns);
    anybody_there = anybody_there || !Ended(process);
    last_there_ns = std::max(last_there_ns, LastHeardNs(process));
  }
  for (const HangParty& party : s.what.launched_nothing) s.newest_ns = std::max(s.newest_ns, party.issue_ns);
  // One process is missing, and each of the others waits for it on its own.
  if (s.what.transfer && !s.what.missing.empty()) s.newest_ns = s.since_ns;
  // Nobody waits any more: what counts is how long they did.
  s.now_ns = anybody_there ? now_ns : std::min(now_ns, last_there_ns);
  return s;
}

}  // namespace

void HangJudge::Add(std::vector<HangSuspect> suspects) {
  for (HangSuspect& what : suspects) {
    if (!what.waiting.empty()) suspects_.push_back(Prepare(job_, std::move(what), now_ns_));
  }
}

std::vector<const JudgedSuspect*> HangJudge::Judge() {
  for (size_t i = 0; i < suspects_.size(); ++i) {
    for (const HangParty& party : suspects_[i].what.waiting) NoteWait(party, i);
    for (const HangParty& party : suspects_[i].what.behind) NoteWait(party, i);
  }
  for (size_t i = 0; i < suspects_.size(); ++i) JudgeOne(i);
  const bool any_first = std::any_of(suspects_.begin(), suspects_.end(),
                                     [&](const JudgedSuspect& s) { return s.eligible && s.behind.empty(); });
  std::vector<const JudgedSuspect*> hangs;
  for (const JudgedSuspect& s : suspects_) {
    if (!s.eligible || (any_first && !s.behind.empty())) continue;
    const bool behind_innocent =
        std::any_of(s.behind.begin(), s.behind.end(), [&](size_t at) { return !suspects_[at].eligible; });
    if (!behind_innocent) hangs.push_back(&s);
  }
  return hangs;
}

void HangJudge::JudgeOne(size_t index) {
  JudgedSuspect& s = suspects_[index];
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

uint64_t HangJudge::AskAfterNs() const {
  return after_ns_ - std::min(thresholds::kHangAskBeforeNs, after_ns_ / 2);
}

// While a rank could not run its silence was explained; after that it has the limit anew to catch up.
uint64_t HangJudge::LastHaltOfMissing(const JudgedSuspect& s) const {
  uint64_t until_ns = 0;
  for (const uint32_t process : s.what.missing) {
    for (const model::ProcessCondition::Halt& halt : Of(process).condition().halts()) {
      if (halt.reason != model::ProcessCondition::Reason::kEnded && halt.until_ns <= s.now_ns)
        until_ns = std::max(until_ns, halt.until_ns);
    }
  }
  return until_ns;
}

std::vector<uint32_t> HangJudge::HaltedThatOthersWaitFor(const JudgedSuspect& s) const {
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

// Some ranks have not issued it: whether those have done nothing for so long.
bool HangJudge::NobodyWorksOnIt(JudgedSuspect& s, size_t index) {
  for (const uint32_t missing : s.what.missing) {
    const ProcessModel& process = Of(missing);
    const HostProgress& p = process.progress();
    // Its calls may have been left out on request, or lost: then its sends and receives are not counted
    // right.
    // A rank is in a recorded step a moment later than another one is.
    if (p.last_left_out_ns > s.since_ns + thresholds::kHangHeardWithinNs) return false;
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
bool HangJudge::NothingExplainsIt(JudgedSuspect& s, size_t index) {
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
  return Since(horizon_ns, ready_ns) >= (s.earlier_work ? thresholds::kHangExcuses * after_ns_ : after_ns_);
}

const LaunchedBefore& HangJudge::Before(uint32_t process, LaunchOf from) {
  const auto [at, added] = before_.try_emplace({process, from});
  if (added) at->second = LaunchesBefore(Of(process), from);
  return at->second;
}

void HangJudge::NoteWait(const HangParty& party, size_t index) {
  if (party.launch.correlation != 0) {
    replays_of_[party.process].emplace_back(party.launch.correlation, index);
  } else {
    waits_in_[{party.process, party.launch.plan}].push_back(index);
  }
}

void HangJudge::AddBehind(size_t index, uint32_t process, uint64_t plan, JudgedSuspect& s) const {
  const auto found = waits_in_.find({process, plan});
  if (found == waits_in_.end()) return;
  for (const size_t other : found->second) AddIfNew(index, other, s);
}

// Suspects that the process waits in by what it launched before. True if it launched something else, too.
bool HangJudge::AddBehind(size_t index, uint32_t process, const LaunchedBefore& launched,
                          JudgedSuspect& s) const {
  for (const uint64_t plan : launched.plans) AddBehind(index, process, plan, s);
  const auto found = replays_of_.find(process);
  if (found == replays_of_.end()) return !launched.others.empty();
  // A graph of which some kernel has ended is not among the launches that have not.
  for (const auto& [correlation, other] : found->second) {
    if (launched.correlation == 0 || correlation < launched.correlation) AddIfNew(index, other, s);
  }
  return std::any_of(launched.others.begin(), launched.others.end(), [&](uint64_t correlation) {
    return std::none_of(found->second.begin(), found->second.end(),
                        [&](const auto& replay) { return replay.first == correlation; });
  });
}

}  // namespace gpuprobe::analysis
