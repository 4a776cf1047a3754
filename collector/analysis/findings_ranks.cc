#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/median.h"
#include "collector/analysis/rank_groups.h"
#include "collector/analysis/report.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

using Cause = Straggler::Cause;

constexpr size_t kMostRanges = 8;  // in a list of ranks

// How much longer a step is when the rank is late.
double LongerWhenLate(const Straggler& s) {
  const bool by_step = s.late_steps > 0;
  const uint64_t late = by_step ? s.late_steps : s.caused.steps_blamed;
  const uint64_t steps = by_step ? s.compared_steps : s.caused.steps;
  return s.lost_ns_per_step * static_cast<double>(steps) / static_cast<double>(std::max<uint64_t>(late, 1));
}

std::string Who(const Report& report, const Straggler& s) {
  if (s.slow_stage) {
    return absl::StrFormat(
        "Rank %d holds up the pipeline: its stage takes %s longer per step than the others. This lengthens "
        "the step by %s (%s), and its neighbours wait %s per step for it.",
        s.rank, Duration(s.cause_ns_per_step), Duration(s.lost_ns_per_step), Percent(s.throughput_loss),
        Duration(s.caused.pair_per_step_ns));
  }
  if (s.caused.per_step_ns <= 0) return "";
  // A rank that was started again has several processes.
  const size_t heard = static_cast<size_t>(std::max(report.conditions.ranks_heard, 0));
  const size_t others = (heard > 1 ? heard : report.ranks.size()) - 1;
  const std::string whom = others == 1 ? "other rank" : absl::StrCat("other ", others, " ranks");
  if (s.since_step.has_value()) {
    return absl::StrFormat(
        "The %s %s waited for rank %d since step %d, which lengthens each step since then by %s; averaged "
        "over all %d steps, by %s (%s).",
        whom, others == 1 ? "has" : "have", s.rank, *s.since_step, Duration(LongerWhenLate(s)),
        s.compared_steps, Duration(s.lost_ns_per_step), Percent(s.throughput_loss));
  }
  return absl::StrFormat("The %s %s for rank %d, %s per step%s; this lengthens the step by %s (%s).", whom,
                         others == 1 ? "waits" : "wait", s.rank, Duration(s.caused.per_step_ns),
                         others == 1 ? "" : " each", Duration(s.lost_ns_per_step),
                         Percent(s.throughput_loss));
}

std::string Place(const Straggler& s) {
  return s.device.has_value() ? absl::StrCat("GPU ", *s.device, " on ", s.host) : s.host;
}

// A sentence on the load of its host, if that is worse than elsewhere; else empty.
std::string HostText(const Straggler& s) {
  const std::vector<std::string> clauses = HostLoadClauses(s.load, &s.usual_load);
  return clauses.empty() ? "" : absl::StrCat(" On its host, ", absl::StrJoin(clauses, "; "), ".");
}

std::string CauseText(const Straggler& s) {
  switch (s.cause) {
    case Cause::kSlowKernels:
      if (s.kernel.empty())
        return absl::StrFormat("Its kernels run %.2fx slower than on the other ranks.", s.slowdown);
      return absl::StrFormat(
          "Its kernels run %.2fx slower than the same kernels on the other ranks (%s vs %s for %s); launch "
          "counts match.",
          s.slowdown, Duration(s.kernel_mean_ns), Duration(s.kernel_elsewhere_ns), KernelName(s.kernel, 40));
    case Cause::kMoreWork:
      return absl::StrFormat("It launches %.2fx the work of the other ranks: %s more compute per step.",
                             s.work_ratio, Duration(s.cause_ns_per_step));
    case Cause::kLateLaunch:
      return absl::StrFormat(
          "Its GPU is idle %s longer per step because its host launches late; its kernels run as fast as on "
          "the other ranks.",
          Duration(s.cause_ns_per_step));
    case Cause::kLateInput:
      return absl::StrFormat("It waits %s longer per step for its input.", Duration(s.cause_ns_per_step));
    case Cause::kSlowCopies:
      return absl::StrFormat("Its copies take %s longer per step than the others'.",
                             Duration(s.cause_ns_per_step));
    default:
      return "No part of its step explains the delay.";
  }
}

std::string Why(const Straggler& s) { return absl::StrCat(CauseText(s), HostText(s)); }

std::string Advice(const Straggler& s) {
  std::string host = HostLoadAdvice(s.load, &s.usual_load, absl::StrCat("rank ", s.rank));
  // Slow kernels and more of them have causes of their own.
  if (!host.empty() && s.cause != Cause::kSlowKernels && s.cause != Cause::kMoreWork) return host;
  switch (s.cause) {
    case Cause::kSlowKernels:
      return absl::StrCat("Check ", Place(s),
                          ": clocks, power limit, temperature, and other processes on it.");
    case Cause::kMoreWork:
      return "Give all ranks batches of equal cost (sequence lengths, experts, layers per stage).";
    case Cause::kLateLaunch:
      return absl::StrCat("Check the rank's host, ", s.host,
                          ": CPU clocks, other load, NUMA binding, garbage collection.");
    case Cause::kLateInput:
      return "Check its data loader: workers, storage, its shard of the data.";
    case Cause::kUnknown:
      return absl::StrCat("Check ", Place(s), " and the rank's records: gpuprobe export.");
    default:
      return absl::StrCat("Compare the PCIe link of ", Place(s), " with those of the other ranks.");
  }
}

// Two groups of ranks, of which the slower one costs the other kWaitedStepShare of the step.
std::optional<RankGroups> GroupsThatWait(const Report& report) {
  std::optional<RankGroups> groups = RankGroupsOf(report);
  if (groups.has_value() && groups->lost_ns < thresholds::kWaitedStepShare * report.communication.step_ns)
    groups.reset();
  return groups;
}

void OfCause(const Report& report, Cause cause, std::vector<Finding>& out) {
  if (GroupsThatWait(report).has_value()) return;  // they are not single ones
  for (const Straggler& s : report.stragglers) {
    const bool waited_for = s.lost_ns_per_step > 0;
    if (s.cause != cause || (waited_for && !s.persistent)) continue;
    // Slower kernels are worth knowing although nobody waits; a late rank that nobody waits for is not late.
    if (!waited_for && (cause != Cause::kSlowKernels || s.extra_ns <= 0)) continue;
    Finding f{.statement = Who(report, s), .evidence = Why(s), .advice = Advice(s)};
    f.about = {.ranks = {s.rank}, .first_step = s.since_step};
    if (waited_for) {
      f.cost_ns_per_step = s.since_step.has_value() ? LongerWhenLate(s) : s.lost_ns_per_step;
      if (s.since_step.has_value())
        absl::StrAppend(&f.advice, " Before step ", *s.since_step,
                        " it kept up with the others: find out what changed then.");
    } else {
      f.statement = absl::StrFormat(
          "Rank %d is slow: its kernels run %.2fx slower than the same kernels on the other ranks, %s more "
          "in total.",
          s.rank, s.slowdown, Duration(s.extra_ns));
      if (s.others_wait_mean_ns > 0)
        absl::StrAppend(&f.evidence, " In collectives, each other rank waited ",
                        Duration(s.others_wait_mean_ns), " in total and rank ", s.rank, " ",
                        Duration(s.wait_ns), ".");
    }
    out.push_back(std::move(f));
  }
}

// By which part of its step the rank exceeds the median of the others most; empty if that is little of what
// others wait for it.
std::string LongestPart(const Report& report, const RankReport& rank) {
  struct Part {
    const char* text;
    double (*of)(const StepMeans& means);
  };
  static constexpr Part kParts[] = {
      {"It computes %s longer per step than the others.", [](const StepMeans& m) { return m.compute_ns; }},
      {"Its GPU is idle %s longer per step than the others' because of its host.",
       [](const StepMeans& m) { return m.host_bound_ns + m.sync_ns; }},
      {"It waits %s longer per step for its input than the others.",
       [](const StepMeans& m) { return m.input_ns; }},
      {"Its copies take %s longer per step than the others'.", [](const StepMeans& m) { return m.copy_ns; }},
  };
  const char* text = nullptr;
  double most_ns = thresholds::kExplainedDelayShare * rank.caused.per_step_ns;
  for (const Part& part : kParts) {
    std::vector<double> others;
    for (const RankReport& other : report.ranks) {
      if (&other != &rank && other.step_means.steps > 0) others.push_back(part.of(other.step_means));
    }
    if (others.empty()) return "";
    const double excess_ns = part.of(rank.step_means) - UpperMedian(std::move(others));
    if (excess_ns <= most_ns) continue;
    most_ns = excess_ns;
    text = part.text;
  }
  if (text == nullptr) return "";
  return absl::StrCat(" ", absl::StrReplaceAll(text, {{"%s", Duration(most_ns)}}));
}

// Whom ranks wait for who wait for each other, as a clause, with evidence and advice. Without a straggler
// chance is not excluded: most of it may still be one rank's, in few steps.
Finding OfBlame(const Report& report) {
  double all_ns = 0;
  const RankReport* last = &report.ranks.front();
  for (const RankReport& r : report.ranks) {
    all_ns += r.caused.per_step_ns;
    if (r.caused.per_step_ns > last->caused.per_step_ns) last = &r;
  }
  const double share = all_ns > 0 ? last->caused.per_step_ns / all_ns : 0;
  const double even = 1.0 / static_cast<double>(report.ranks.size());
  if (all_ns <= 0) {
    return {.statement = "the rank at fault is unknown",
            .evidence = "",
            .advice = "Compare the ranks' records: gpuprobe export."};
  }
  if (share < even + thresholds::kOneRankShare * (1 - even)) {
    return {
        .statement = "no single rank is at fault",
        .evidence = absl::StrFormat("The rank that arrives last changes from step to step; rank %s causes "
                                    "the largest share of the waiting, %s.",
                                    last->label, Percent(share)),
        .advice =
            "Balance the cost of a step across ranks (sample lengths), and check for noise on the hosts."};
  }
  return {.statement = absl::StrFormat("%s of it for rank %s", Percent(share), last->label),
          .evidence = absl::StrFormat(
              "They waited for rank %s in %d of %d steps: too few to distinguish a slow rank from chance.%s",
              last->label, last->caused.steps_blamed, last->caused.steps, LongestPart(report, *last)),
          .advice = absl::StrFormat("Record more steps. If it stays rank %s, check its data, its host and "
                                    "its GPU; if it changes, balance the cost of a step across ranks.",
                                    last->label)};
}

}  // namespace

void StragglerSlowGpu(const Report& report, std::vector<Finding>& out) {
  OfCause(report, Cause::kSlowKernels, out);
}
void StragglerMoreWork(const Report& report, std::vector<Finding>& out) {
  OfCause(report, Cause::kMoreWork, out);
}
void StragglerLateLaunch(const Report& report, std::vector<Finding>& out) {
  OfCause(report, Cause::kLateLaunch, out);
}
void StragglerLateInput(const Report& report, std::vector<Finding>& out) {
  OfCause(report, Cause::kLateInput, out);
}
void StragglerSlowCopies(const Report& report, std::vector<Finding>& out) {
  OfCause(report, Cause::kSlowCopies, out);
}

// In a pipeline ranks wait for each other by design, and behind a slow stage for one that is not at fault.
void StragglerUnexplained(const Report& report, std::vector<Finding>& out) {
  if (report.communication.pipeline.has_value()) return;
  OfCause(report, Cause::kUnknown, out);
}

void StragglerIntermittent(const Report& report, std::vector<Finding>& out) {
  for (const Straggler& s : report.stragglers) {
    if (s.persistent || s.lost_ns_per_step <= 0) continue;
    if (s.cause == Cause::kUnknown && report.communication.pipeline.has_value()) continue;
    const bool by_step = s.late_steps > 0;
    const uint64_t late = by_step ? s.late_steps : s.caused.steps_blamed;
    const uint64_t steps = by_step ? s.compared_steps : s.caused.steps;
    const std::string when = s.stretch.has_value()
                                 ? absl::StrFormat("from step %d to step %d (in %d of %d steps overall)",
                                                   s.stretch->first, s.stretch->second, late, steps)
                                 : absl::StrFormat("intermittently (in %d of %d steps)", late, steps);
    FindingSubject about{.ranks = {s.rank}};
    if (s.stretch.has_value()) {
      about.first_step = s.stretch->first;
      about.last_step = s.stretch->second;
    }
    out.push_back(
        {.statement = absl::StrFormat("The other ranks wait for rank %d %s; this lengthens these steps by "
                                      "%s, and the average step by %s (%s).",
                                      s.rank, when, Duration(LongerWhenLate(s)), Duration(s.lost_ns_per_step),
                                      Percent(s.throughput_loss)),
         .evidence = absl::StrCat(s.stretch.has_value() || s.caused.steps_blamed == 0
                                      ? ""
                                      : absl::StrCat("First in step ", s.caused.first_blamed_step,
                                                     ", last in step ", s.caused.last_blamed_step, ". "),
                                  "Each other rank waits ", Duration(s.caused.per_step_ns),
                                  " per step for it on average. ", Why(s)),
         .advice = absl::StrCat(Advice(s),
                                " Intermittent delays are often caused by another process or by throttling."),
         .cost_ns_per_step = s.lost_ns_per_step,
         .about = about});
  }
}

void TwoSpeeds(const Report& report, std::vector<Finding>& out) {
  const std::optional<RankGroups> groups = GroupsThatWait(report);
  if (!groups.has_value()) return;
  const double step_ns = report.communication.step_ns;
  std::string evidence =
      absl::StrFormat("%s takes the slower ranks %s per step, the others %s.", groups->part,
                      Duration(groups->slower_part_ns), Duration(groups->faster_part_ns));
  evidence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(evidence.front())));
  if (!report.conditions.differing.empty())
    absl::StrAppend(&evidence,
                    " Their hardware or software differs: ", absl::StrJoin(report.conditions.differing, "; "),
                    ".");
  out.push_back(
      {.statement = absl::StrFormat("Two groups of ranks run at different speeds: ranks %s need %s per step, "
                                    "ranks %s need %s and wait for them; this lengthens the step by %s (%s).",
                                    RankList(groups->slower, kMostRanges), Duration(groups->slower_ns),
                                    RankList(groups->faster, kMostRanges), Duration(groups->faster_ns),
                                    Duration(groups->lost_ns), Percent(groups->lost_ns / step_ns)),
       .evidence = evidence,
       .advice = "Find out what the slower ranks have in common (GPU type, host, power limit, data), or give "
                 "them less work.",
       .cost_ns_per_step = groups->lost_ns,
       .about = {.ranks = groups->slower}});
}

void Imbalance(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  if (c.pipeline.has_value() || c.step_ns <= 0 || report.ranks.size() < 2) return;
  if (GroupsThatWait(report).has_value()) return;
  // Waiting caused by single ranks belongs to their findings.
  const double waited_ns = c.exposed_wait_ns();
  double explained_ns = 0;
  for (const Straggler& s : report.stragglers) explained_ns += s.lost_ns_per_step;
  if (explained_ns >= thresholds::kStragglersExplainShare * waited_ns && explained_ns > 0) return;
  const double lost_ns = waited_ns - explained_ns;
  if (std::min(lost_ns, c.waited_ns) < thresholds::kImbalanceStepShare * c.step_ns) return;
  // Ranks that all wait for their input, or for their hosts, do not wait equally long: that is the cause
  // then.
  double host_ns = 0;
  for (const RankReport& r : report.ranks)
    host_ns += (r.step_means.input_ns + r.step_means.host_bound_ns + r.step_means.sync_ns +
                r.step_means.launch_gap_ns) /
               static_cast<double>(report.ranks.size());
  if (host_ns > lost_ns) return;
  Finding f = OfBlame(report);
  f.statement =
      absl::StrFormat("Ranks wait for each other, %s per step each (%s); this lengthens the step by %s (%s).",
                      Duration(c.waited_ns), f.statement, Duration(lost_ns), Percent(lost_ns / c.step_ns));
  f.cost_ns_per_step = lost_ns;
  out.push_back(std::move(f));
}

}  // namespace gpuprobe::analysis
