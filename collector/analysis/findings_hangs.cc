#include <algorithm>
#include <csignal>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/report.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

FindingSubject About(const Hang& hang) {
  FindingSubject about;
  for (const HangRank& r : hang.ranks) {
    if (r.rank.has_value()) about.ranks.push_back(*r.rank);
  }
  return about;
}

void HangsOfKind(const Report& report, Hang::Kind kind, std::vector<Finding>& out) {
  for (const Hang& hang : report.hangs) {
    if (hang.kind != kind) continue;
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

// People and launchers end jobs with these, so they do not explain why a job ended. A program that handles
// one usually exits with 128 plus its number.
bool IsRequestToEnd(const Halt& end) {
  constexpr uint32_t kShellsBase = 128;
  uint32_t signal = end.signal.value_or(0);
  if (signal == 0 && end.exit_code.value_or(0) > kShellsBase) signal = *end.exit_code - kShellsBase;
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

// Whether it went on, or ended in another way.
bool Outlived(const RankReport& other, const RankReport& dead) {
  if (!other.end.has_value() || other.end->since_ns >= dead.end->since_ns + thresholds::kEndedTogetherNs)
    return true;
  const bool known = dead.end->signal.has_value() || dead.end->exit_code.has_value();
  if (!known || IsRequestToEnd(*dead.end)) return false;
  return other.end->signal != dead.end->signal || other.end->exit_code != dead.end->exit_code;
}

// A hang ends in timeouts and in people who kill the job: a later death is not the cause.
bool FollowsHang(const Report& report, const RankReport& dead) {
  return std::any_of(report.hangs.begin(), report.hangs.end(), [&](const Hang& hang) {
    const bool for_it = std::any_of(hang.ranks.begin(), hang.ranks.end(), [&](const HangRank& r) {
      return r.pid == dead.pid && r.host == dead.host && r.halt.has_value() &&
             r.halt->kind == Halt::Kind::kEnded;
    });
    return !for_it && hang.since_ns + thresholds::kDeathAfterHangNs < dead.end->since_ns;
  });
}

}  // namespace

void RankDied(const Report& report, std::vector<Finding>& out) {
  const RankReport* first = nullptr;
  for (const RankReport& r : report.ranks) {
    if (Died(r) && (first == nullptr || r.end->since_ns < first->end->since_ns)) first = &r;
  }
  // The order of deaths that one look of the collector finds is not known; a launcher's SIGTERM follows
  // another process's death.
  for (const RankReport& r : report.ranks) {
    if (Died(r) && first->end->signal == uint32_t{SIGTERM} && !IsRequestToEnd(*r.end) &&
        r.end->since_ns < first->end->since_ns + thresholds::kSeenTogetherNs)
      first = &r;
  }
  if (first == nullptr || FollowsHang(report, *first)) return;
  // A launcher that starts ranks again does so after the death.
  const auto outlived = std::count_if(report.ranks.begin(), report.ranks.end(), [&](const RankReport& r) {
    return &r != first && r.start_ns < first->end->since_ns && Outlived(r, *first);
  });
  if (outlived == 0) return;
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
    if (stopped) continue;
    out.push_back({.statement = PastHangStatement(past),
                   .evidence = absl::StrCat("During the hang: ", HangEvidence(past.hang)),
                   .advice = HangAdvice(past.hang),
                   .about = About(past.hang)});
  }
}

void HangMismatch(const Report& report, std::vector<Finding>& out) {
  HangsOfKind(report, Hang::Kind::kMismatch, out);
}

void HangMissingRank(const Report& report, std::vector<Finding>& out) {
  HangsOfKind(report, Hang::Kind::kMissingRank, out);
}

void HangAllIssued(const Report& report, std::vector<Finding>& out) {
  HangsOfKind(report, Hang::Kind::kAllIssued, out);
}

}  // namespace gpuprobe::analysis
