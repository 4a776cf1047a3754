#include "collector/analysis/hangs/hang_judge.h"

#include <algorithm>

#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::ProcessModel;

// In place of a plan: a wait on the host, with nothing on the device.
constexpr uint64_t kOnHost = UINT64_MAX;

void AddIfNew(size_t index, WaitsBehind other, JudgedSuspect& s) {
  const bool known = std::any_of(s.behind.begin(), s.behind.end(),
                                 [&](const WaitsBehind& b) { return b.suspect == other.suspect; });
  if (other.suspect != index && !known) s.behind.push_back(other);
}

bool IssuedLater(const ProcessModel& process, const HangParty& party) {
  const HostProgress::LastCall& last = process.progress().last_call;
  return party.launch.plan != 0 && last.plan != party.launch.plan && last.issue_ns > party.issue_ns;
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

std::vector<uint32_t> CulpritsOf(const JudgedSuspect& s) {
  std::vector<uint32_t> culprits = s.halted;
  if (culprits.empty()) {
    culprits = s.what.missing;
    for (const HangParty& party : s.what.launched_nothing) culprits.push_back(party.process);
  }
  std::sort(culprits.begin(), culprits.end());
  return culprits;
}

void HangJudge::Add(std::vector<HangSuspect> suspects) {
  for (HangSuspect& what : suspects) {
    if (!what.waiting.empty()) suspects_.push_back(Prepare(job_, std::move(what), now_ns_));
  }
}

std::vector<JudgedHang> HangJudge::Judge() {
  for (size_t i = 0; i < suspects_.size(); ++i) {
    for (const HangParty& party : suspects_[i].what.waiting) NoteWait(party, i);
    for (const HangParty& party : suspects_[i].what.behind) NoteWait(party, i);
  }
  for (size_t i = 0; i < suspects_.size(); ++i) JudgeOne(i);
  Reverse waits_behind(suspects_.size());
  for (size_t i = 0; i < suspects_.size(); ++i) {
    for (const WaitsBehind& b : suspects_[i].behind)
      waits_behind[b.suspect].push_back({.suspect = i, .process = b.process});
  }
  std::vector<JudgedHang> hangs;
  std::vector<bool> seen(suspects_.size());
  for (size_t i = 0; i < suspects_.size(); ++i) {
    if (!suspects_[i].behind.empty()) continue;
    JudgedHang hang;
    hang.suspects.push_back(&suspects_[i]);
    seen[i] = true;
    FollowBack(waits_behind, {i}, hang, seen);
    AddHang(std::move(hang), hangs);
  }
  // Whatever is left waits behind a circle, or in one.
  for (size_t i = 0; i < suspects_.size(); ++i) {
    if (seen[i]) continue;
    const std::vector<size_t> circle = CircleFrom(i);
    JudgedHang hang;
    for (size_t at = 0; at < circle.size(); ++at) {
      const JudgedSuspect& s = suspects_[circle[at]];
      const size_t next = circle[(at + 1) % circle.size()];
      const auto behind = std::find_if(s.behind.begin(), s.behind.end(),
                                       [&](const WaitsBehind& b) { return b.suspect == next; });
      hang.suspects.push_back(&s);
      hang.circle.push_back(behind->process);
      seen[circle[at]] = true;
    }
    FollowBack(waits_behind, circle, hang, seen);
    AddHang(std::move(hang), hangs);
  }
  return hangs;
}

// Adds the suspects that wait behind those at `from`, directly or not.
void HangJudge::FollowBack(const Reverse& waits_behind, const std::vector<size_t>& from, JudgedHang& hang,
                           std::vector<bool>& seen) const {
  std::vector<size_t> found = from;
  for (size_t next = 0; next < found.size(); ++next) {
    for (const WaitsBehind& follower : waits_behind[found[next]]) {
      if (seen[follower.suspect]) continue;
      seen[follower.suspect] = true;
      found.push_back(follower.suspect);
      if (suspects_[follower.suspect].eligible)
        hang.followers.emplace_back(&suspects_[follower.suspect], follower.process);
    }
  }
}

// REQUIRES: from `start`, no suspect without others that it waits behind can be reached.
std::vector<size_t> HangJudge::CircleFrom(size_t start) const {
  std::vector<size_t> path;
  std::vector<bool> on_path(suspects_.size());
  for (size_t at = start; !on_path[at]; at = suspects_[at].behind.front().suspect) {
    on_path[at] = true;
    path.push_back(at);
    start = suspects_[at].behind.front().suspect;
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), start));
  // Told from the oldest wait on, whichever was found first.
  std::rotate(
      path.begin(),
      std::min_element(path.begin(), path.end(),
                       [&](size_t a, size_t b) { return suspects_[a].since_ns < suspects_[b].since_ns; }),
      path.end());
  return path;
}

// Waits for the same processes are one hang.
void HangJudge::AddHang(JudgedHang hang, std::vector<JudgedHang>& hangs) const {
  for (const JudgedSuspect* s : hang.suspects) {
    if (!s->eligible || s->what.told) return;
  }
  const std::vector<uint32_t> culprits = CulpritsOf(*hang.suspects.front());
  const auto same = std::find_if(hangs.begin(), hangs.end(), [&](const JudgedHang& other) {
    return hang.circle.empty() && other.circle.empty() && !culprits.empty() &&
           CulpritsOf(*other.suspects.front()) == culprits &&
           other.suspects.front()->halted.empty() == hang.suspects.front()->halted.empty();
  });
  if (same == hangs.end()) {
    hangs.push_back(std::move(hang));
    return;
  }
  std::vector<const JudgedSuspect*>& all = same->suspects;
  all.push_back(hang.suspects.front());
  std::stable_sort(all.begin(), all.end(),
                   [](const JudgedSuspect* a, const JudgedSuspect* b) { return a->since_ns < b->since_ns; });
  same->followers.insert(same->followers.end(), hang.followers.begin(), hang.followers.end());
}

void HangJudge::JudgeOne(size_t index) {
  JudgedSuspect& s = suspects_[index];
  if (s.what.told) {
    s.eligible = true;
    return;
  }
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
  if (s.what.creation && s.all_issued()) {
    // Thousands of ranks take minutes to find each other.
    s.eligible = waited_ns >= thresholds::kHangExcuses * after_ns_;
    return;
  }
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

// It had been waited for, without an explanation, for the limit before it ended: its end is not the cause.
bool HangJudge::EndedAfterTheHang(const JudgedSuspect& s, uint32_t process,
                                  const model::ProcessCondition::Halt& halt) const {
  if (halt.reason != model::ProcessCondition::Reason::kEnded) return false;
  return Since(halt.since_ns, std::max({s.newest_ns, AliveNs(Of(process)), LastHaltOfMissing(s)})) >=
         after_ns_;
}

std::vector<uint32_t> HangJudge::HaltedThatOthersWaitFor(const JudgedSuspect& s) const {
  std::set<uint32_t> processes(s.what.missing.begin(), s.what.missing.end());
  for (const HangParty& party : s.what.waiting) processes.insert(party.process);
  for (const HangParty& party : s.what.launched_nothing) processes.insert(party.process);
  std::vector<uint32_t> halted;
  for (const uint32_t process : processes) {
    const model::ProcessCondition::Halt* halt = FindHalt(Of(process), s.now_ns);
    if (halt == nullptr || EndedAfterTheHang(s, process, *halt)) continue;
    const uint64_t halted_ns = HaltedSinceNs(Of(process), *halt);
    const bool waited_for =
        std::any_of(s.what.waiting.begin(), s.what.waiting.end(), [&](const HangParty& party) {
          return FindHalt(Of(party.process), s.now_ns) == nullptr &&
                 Since(s.now_ns, std::max(party.issue_ns, halted_ns)) >= after_ns_;
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
    if (!s.what.traced && p.last_left_out_ns > s.since_ns + thresholds::kHangHeardWithinNs) return false;
    if (s.what.transfer && !HeardAllLaunches(process)) return false;
    if (Since(std::min(NowOf(process, now_ns_), s.now_ns), AliveNs(process)) < after_ns_) return false;
    if (IsGone(process, s.now_ns)) continue;
    AddBehind(index, missing, kOnHost, s);
    // It issued another call that is open, and did not go on from there.
    if (s.what.traced) AddBehind(index, missing, model::IssuedCalls::kPlanNotKnown, s);
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
  if (s.what.traced) return false;
  uint64_t ready_ns = 0;
  uint64_t horizon_ns = s.now_ns;
  std::vector<uint32_t> held_back;
  bool excused = false;
  for (const HangParty& party : s.what.waiting) {
    const ProcessModel& process = Of(party.process);
    if (!process.has_gpu_times()) return false;
    if (process.progress().last_left_out_ns > s.since_ns) return false;
    const LaunchedBefore& launched = Before(party.process, party.launch);
    const bool other_work = AddBehind(index, party.process, launched, s);
    excused = excused || other_work;
    // It may have ended itself, and a later call hangs.
    if (other_work || !launched.plans.empty() || IssuedLater(process, party))
      held_back.push_back(party.process);
    // A group of transfers ends as a whole: it is reported by those whose other side is missing.
    if (s.what.transfer) AddBehind(index, party.process, party.launch.plan, s);
    ready_ns = std::max({ready_ns, party.issue_ns, launched.end_ns});
    horizon_ns = std::min(horizon_ns, NowOf(process, now_ns_));
  }
  if (s.what.transfer)
    std::erase_if(s.behind,
                  [&](const WaitsBehind& b) { return IsAnotherOfTheGroup(s, suspects_[b.suspect]); });
  // Behind another suspect, that one explains what has not ended.
  s.earlier_work = excused && s.behind.empty();
  if (Since(horizon_ns, ready_ns) >= AskAfterNs()) held_back_.insert(held_back.begin(), held_back.end());
  uint64_t limit_ns = after_ns_;
  // Records of a call that has ended may be on their way, until they were asked for and have come.
  const bool unanswered = std::any_of(held_back.begin(), held_back.end(), [&](uint32_t process) {
    return Of(process).progress().last_full_flush_ns <= ready_ns;
  });
  if (unanswered) limit_ns = std::max(limit_ns, AskAfterNs() + thresholds::kHangAnswerNs);
  if (s.earlier_work) limit_ns = thresholds::kHangExcuses * after_ns_;
  return Since(horizon_ns, ready_ns) >= limit_ns;
}

const LaunchedBefore& HangJudge::Before(uint32_t process, LaunchOf from) {
  const auto [at, added] = before_.try_emplace({process, from});
  if (added) at->second = LaunchesBefore(Of(process), from);
  return at->second;
}

void HangJudge::NoteWait(const HangParty& party, size_t index) {
  if (suspects_[index].what.creation) {
    waits_in_[{party.process, kOnHost}].push_back(index);
  } else if (party.launch.correlation != 0) {
    replays_of_[party.process].emplace_back(party.launch.correlation, index);
  } else {
    waits_in_[{party.process, party.launch.plan}].push_back(index);
  }
}

void HangJudge::AddBehind(size_t index, uint32_t process, uint64_t plan, JudgedSuspect& s) const {
  const auto found = waits_in_.find({process, plan});
  if (found == waits_in_.end()) return;
  for (const size_t other : found->second) AddIfNew(index, {other, process}, s);
}

// Suspects that the process waits in by what it launched before. True if it launched something else, too.
bool HangJudge::AddBehind(size_t index, uint32_t process, const LaunchedBefore& launched,
                          JudgedSuspect& s) const {
  for (const uint64_t plan : launched.plans) AddBehind(index, process, plan, s);
  const auto found = replays_of_.find(process);
  if (found == replays_of_.end()) return !launched.others.empty();
  // A graph of which some kernel has ended is not among the launches that have not.
  for (const auto& [correlation, other] : found->second) {
    if (launched.correlation == 0 || correlation < launched.correlation) AddIfNew(index, {other, process}, s);
  }
  return std::any_of(launched.others.begin(), launched.others.end(), [&](uint64_t correlation) {
    return std::none_of(found->second.begin(), found->second.end(),
                        [&](const auto& replay) { return replay.first == correlation; });
  });
}

}  // namespace gpuprobe::analysis
