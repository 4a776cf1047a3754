#include <algorithm>
#include <csignal>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/trust/last_moments_text.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

FindingSubject About(const Hang& hang) {
  FindingSubject about;
  for (const HangRank& r : hang.ranks) {
    if (r.rank.has_value()) about.ranks.push_back(*r.rank);
  }
  return about;
}

template <Hang::Kind kind, bool idle = false>
void HangsOfKind(const Report& report, std::vector<Finding>& out) {
  for (const Hang& hang : report.hangs) {
    if (hang.kind != kind || hang.idle != idle) continue;
    out.push_back({.statement = HangStatement(hang),
                   .evidence = HangEvidence(hang),
                   .advice = HangAdvice(hang),
                   .about = About(hang)});
  }
}

bool Died(const RankReport& r) {
  if (!r.end.has_value()) return false;
  if (r.end->exit_code.has_value()) return *r.end->exit_code != 0;
  return r.end->signal.has_value() || r.cut_off;
}

// Whether it went on, or ended in another way.
bool Outlived(const RankReport& other, const RankReport& dead) {
  if (!other.end.has_value() || other.end->since_ns >= dead.end->since_ns + thresholds::kEndedTogetherNs)
    return true;
  const bool known = dead.end->signal.has_value() || dead.end->exit_code.has_value();
  if (!known || RequestToEnd(*dead.end) != 0) return false;
  return other.end->signal != dead.end->signal || other.end->exit_code != dead.end->exit_code;
}

// A hang ends in timeouts and in people who kill the job: a later death is not the cause.
bool FollowsHang(const Report& report, const RankReport& dead) {
  return std::any_of(report.hangs.begin(), report.hangs.end(), [&](const Hang& hang) {
    const bool for_it = std::any_of(hang.ranks.begin(), hang.ranks.end(), [&](const HangRank& r) {
      return r.pid == dead.pid && r.host == dead.host && r.state == HangRank::State::kHalted &&
             r.halt.has_value() && r.halt->kind == Halt::Kind::kEnded;
    });
    return !for_it && !hang.idle && hang.since_ns + thresholds::kDeathAfterHangNs < dead.end->since_ns;
  });
}

// Calls differed from then on, and the rank that differed is the one that ranks of this communicator wait
// for: its calls are off by one.
bool ExplainsAHang(const Report& report, const Hang& mismatch) {
  const auto differs = [&](const HangRank& r) {
    return std::any_of(mismatch.ranks.begin(), mismatch.ranks.end(),
                       [&](const HangRank& other) { return other.pid == r.pid && other.host == r.host; });
  };
  return mismatch.mismatches_after > 0 &&
         std::any_of(report.hangs.begin(), report.hangs.end(), [&](const Hang& hang) {
           return hang.kind == Hang::Kind::kMissingRank && hang.comm == mismatch.comm &&
                  std::any_of(hang.ranks.begin(), hang.ranks.end(), differs);
         });
}

// A launcher that starts ranks again does so after the death.
ptrdiff_t SurvivorsOf(const Report& report, const RankReport& dead) {
  return std::count_if(report.ranks.begin(), report.ranks.end(), [&](const RankReport& r) {
    return &r != &dead && r.start_ns < dead.end->since_ns && Outlived(r, dead);
  });
}

}  // namespace

const RankReport* FirstToDie(const Report& report) {
  const RankReport* first = nullptr;
  for (const RankReport& r : report.ranks) {
    if (Died(r) && (first == nullptr || r.end->since_ns < first->end->since_ns)) first = &r;
  }
  // The order of deaths that one look of the collector finds is not known; a launcher's SIGTERM follows
  // another process's death.
  for (const RankReport& r : report.ranks) {
    if (Died(r) && first->end->signal == uint32_t{SIGTERM} && RequestToEnd(*r.end) == 0 &&
        r.end->since_ns < first->end->since_ns + thresholds::kSeenTogetherNs)
      first = &r;
  }
  if (first == nullptr || FollowsHang(report, *first)) return nullptr;
  return SurvivorsOf(report, *first) > 0 ? first : nullptr;
}

namespace {

void RankDied(const Report& report, std::vector<Finding>& out) {
  const RankReport* const first = FirstToDie(report);
  if (first == nullptr) return;
  const auto outlived = SurvivorsOf(report, *first);
  const std::string who = first->rank.has_value() ? absl::StrCat("rank ", first->label) : first->label;
  const uint64_t start_ns = report.conditions.start_ns;
  const uint64_t after_ns = first->end->since_ns - std::min(start_ns, first->end->since_ns);
  Finding f{
      .statement = absl::StrCat("R", who.substr(1), " ", HaltText(*first->end), ", ",
                                Duration(static_cast<double>(after_ns)), " into the run, while ", outlived,
                                outlived == 1 ? " other rank was running." : " other ranks were running."),
      .evidence = absl::StrCat("It was pid ", first->pid, " on ", first->host, "."),
      .advice = HaltAdvice(*first->end, who, first->pid)};
  if (first->rank.has_value()) f.about.ranks = {*first->rank};
  if (!first->rank.has_value()) f.statement.replace(0, 1, "P");
  if (first->cut_off)
    f.evidence += " It could not flush, so up to two seconds of its last records are missing.";
  if (first->last_moments.has_value()) {
    const std::string last = MomentsText(*first->last_moments);
    if (!last.empty()) absl::StrAppend(&f.evidence, " Its last moments: ", last, ".");
  }
  out.push_back(std::move(f));
}

void RankStopped(const Report& report, std::vector<Finding>& out) {
  const RankReport* longest = nullptr;
  const Stop* stop = nullptr;
  size_t ranks = 0;
  for (const RankReport& r : report.ranks) {
    ranks += r.stops.empty() ? 0 : 1;
    for (const Stop& s : r.stops) {
      if (stop != nullptr && s.until_ns - s.halt.since_ns <= stop->until_ns - stop->halt.since_ns) continue;
      longest = &r;
      stop = &s;
    }
  }
  if (stop == nullptr) return;
  // If a hang is already reported for it, this would repeat it.
  for (const Hang& hang : report.hangs) {
    for (const HangRank& r : hang.ranks) {
      if (r.pid == longest->pid && r.host == longest->host && r.state == HangRank::State::kHalted) return;
    }
  }
  const std::string who = longest->rank.has_value() ? absl::StrCat("Rank ", longest->label) : longest->label;
  Finding f{
      .statement =
          absl::StrCat(who, " was ", StopText(stop->halt), " for ",
                       Duration(static_cast<double>(stop->until_ns - stop->halt.since_ns)), ", from ",
                       ClockTime(stop->halt.since_ns), " to ", ClockTime(stop->until_ns), "."),
      .evidence = "None of its threads could run, and ranks that waited for it were blocked.",
      .advice =
          "Find out what stopped it: a shell's job control, a debugger, or a scheduler that suspends jobs."};
  if (longest->rank.has_value()) f.about.ranks = {*longest->rank};
  if (ranks == report.ranks.size() && ranks > 1) {
    absl::StrAppend(&f.evidence, " The same happened to every rank.");
  } else if (ranks > 1) {
    absl::StrAppend(&f.evidence, " ", ranks - 1, ranks == 2 ? " other rank was" : " other ranks were",
                    " stopped, too.");
  }
  if (longest->stops.size() > 1)
    absl::StrAppend(&f.evidence, " It was stopped ", longest->stops.size(), " times on record.");
  out.push_back(std::move(f));
}

void HangOver(const Report& report, std::vector<Finding>& out) {
  for (const PastHang& past : report.past_hangs) {
    const bool stopped = std::all_of(past.hang.ranks.begin(), past.hang.ranks.end(), [](const HangRank& r) {
      return r.halt.has_value() && r.halt->kind != Halt::Kind::kEnded;
    });
    if (stopped || past.hang.idle) continue;
    out.push_back({.statement = PastHangStatement(past),
                   .evidence = absl::StrCat("During the hang: ", HangEvidence(past.hang)),
                   .advice = HangAdvice(past.hang),
                   .about = About(past.hang)});
  }
}

void HangMismatch(const Report& report, std::vector<Finding>& out) {
  const size_t first = out.size();
  HangsOfKind<Hang::Kind::kMismatch>(report, out);
  size_t at = first;
  for (const Hang& hang : report.hangs) {
    if (hang.kind != Hang::Kind::kMismatch) continue;
    Finding& f = out[at++];
    const bool stands = std::any_of(report.hangs.begin(), report.hangs.end(), [](const Hang& other) {
      return other.kind != Hang::Kind::kMismatch && !other.idle;
    });
    if (!hang.over || !stands) continue;
    const bool explains = ExplainsAHang(report, hang);
    f.passed = !explains;
    if (explains)
      absl::StrAppend(&f.evidence,
                      " If it skipped or added a call, the hang that is reported below follows "
                      "from it.");
  }
}

Moment AtHang(const Report& report) {
  if (report.hangs.empty()) return {};
  return {.time_ns = report.hangs.front().since_ns};
}

Moment AtPastHang(const Report& report) {
  if (report.past_hangs.empty()) return {};
  return {.time_ns = report.past_hangs.front().since_ns};
}

Moment AtDeath(const Report& report) {
  for (const RankReport& rank : report.ranks) {
    if (rank.end.has_value()) return {.time_ns = rank.end->since_ns};
  }
  return {};
}

Moment AtStop(const Report& report) {
  for (const RankReport& rank : report.ranks) {
    if (!rank.stops.empty()) return {.time_ns = rank.stops.front().halt.since_ns};
  }
  return {};
}

}  // namespace

std::vector<FindingRule> HangRules() {
  return {
      {"rank-died", FindingTopic::kHangs, Severity::kError,
       absl::StrCat("a rank was killed, crashed or exited with an error, and other ranks ran for another ",
                    condition::Seconds(thresholds::kEndedTogetherNs),
                    " or ended differently; not reported after a hang, which also ends ranks"),
       RankDied, "lifelines", AtDeath},
      {"hang-mismatch", FindingTopic::kHangs, Severity::kError,
       "ranks issued the same collective with a different operation, size, type or root", HangMismatch,
       "ranks", AtHang},
      {"hang-missing-rank", FindingTopic::kHangs, Severity::kError,
       "ranks have waited in a collective for --hang-after seconds, while others, which did nothing else, "
       "did not issue it or cannot run (stopped, frozen, dead)",
       HangsOfKind<Hang::Kind::kMissingRank>, "ranks", AtHang},
      {"hang-circular", FindingTopic::kHangs, Severity::kError,
       "ranks have waited for each other in a circle for --hang-after seconds: each one's call waits behind "
       "a call that another one of them does not reach",
       HangsOfKind<Hang::Kind::kCircular>, "ranks", AtHang},
      {"hang-extra-call", FindingTopic::kHangs, Severity::kError,
       "few ranks have waited in a collective for --hang-after seconds, while most ranks of the communicator "
       "made the same, smaller number of calls, and either exited normally or launched all the work before "
       "it",
       HangsOfKind<Hang::Kind::kExtraCall>, "ranks", AtHang},
      {"hang-all-issued", FindingTopic::kHangs, Severity::kError,
       "all ranks issued a collective, and it has not finished within --hang-after seconds",
       HangsOfKind<Hang::Kind::kAllIssued>, "ranks", AtHang},
      {"hang-creation", FindingTopic::kHangs, Severity::kError,
       absl::StrCat(
           "ranks have been in NCCL's call that creates a communicator for --hang-after seconds, while "
           "others, "
           "which did nothing else, have not called it, or failed in it; if all ranks are in it, for ",
           thresholds::kHangExcuses, " times as long"),
       HangsOfKind<Hang::Kind::kCreation>, "ranks", AtHang},
      {"hang-no-work", FindingTopic::kHangs, Severity::kError,
       absl::StrCat("a job with a communicator has trained (", thresholds::kTrainingSteps,
                    " steps or more that go backward or update weights), and no rank has launched work, read "
                    "or written for --hang-after seconds and ",
                    thresholds::kNoWorkPauses,
                    " times its longest pause so far, nothing runs on a GPU, and no rank uses more than ",
                    absl::StrFormat("%g", kHardlyBusyCpus),
                    " CPUs or waits for a message or a child process"),
       HangsOfKind<Hang::Kind::kNoWork>, "standstill", AtHang},
      {"hang-over", FindingTopic::kHangs, Severity::kWarning,
       "a hang was reported while the job ran, and the job then continued; a stopped rank is reported as "
       "rank-stopped instead",
       HangOver, "ranks", AtPastHang},
      {"job-idle", FindingTopic::kHangs, Severity::kInfo,
       absl::StrCat("as hang-no-work, for ", thresholds::kHangExcuses,
                    " times --hang-after, but no rank was seen to train, or one uses a CPU, or waits for a "
                    "message or a child process"),
       HangsOfKind<Hang::Kind::kNoWork, /*idle=*/true>, "standstill"},
      {"rank-stopped", FindingTopic::kHangs, Severity::kWarning,
       absl::StrCat("no thread of a rank could run for ", condition::Seconds(thresholds::kStopNs),
                    " or more: it was stopped, held by a debugger, or its cgroup was frozen"),
       RankStopped, "lifelines", AtStop},
  };
}

}  // namespace gpuprobe::analysis
