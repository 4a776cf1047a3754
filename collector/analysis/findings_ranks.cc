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
#include "collector/analysis/rank_groups.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

using Cause = Straggler::Cause;

constexpr double kImbalanceShare = 0.10;  // of a step
constexpr size_t kMostRanges = 8;         // in a list of ranks
constexpr double kGroupShare = 0.035;     // of a step, as of a straggler
constexpr double kExplainedShare = 0.5;   // of the waiting, that stragglers explain
constexpr double kOneRanksShare = 0.5;    // of the waiting, beyond an equal part: one rank's
constexpr double kLeastExplained = 0.3;   // of what others wait for a rank

// By which a step is longer in which it is late.
double LongerWhenLate(const Straggler& s) {
  const bool by_step = s.late_steps > 0;
  const uint64_t late = by_step ? s.late_steps : s.caused.steps_blamed;
  const uint64_t steps = by_step ? s.compared_steps : s.caused.steps;
  return s.lost_ns_per_step * static_cast<double>(steps) / static_cast<double>(std::max<uint64_t>(late, 1));
}

std::string Who(const Report& report, const Straggler& s) {
  if (s.slow_stage) {
    return absl::StrFormat(
        "Rank %d holds up the pipeline: its stage takes %s a step longer than the others, the step is %s "
        "longer for it, %s, and its neighbours wait %s a step for it.",
        s.rank, Duration(s.cause_ns_per_step), Duration(s.lost_ns_per_step), Percent(s.throughput_loss),
        Duration(s.caused.pair_per_step_ns));
  }
  if (s.caused.per_step_ns <= 0) return "";
  const size_t others = report.ranks.size() - 1;
  const std::string whom = others == 1 ? "" : absl::StrCat(" ", others);
  if (s.since_step.has_value()) {
    return absl::StrFormat(
        "Rank %d has made the other%s wait since step %d: each step since then is %s longer for it; averaged "
        "over all %d steps, %s, %s.",
        s.rank, whom, *s.since_step, Duration(LongerWhenLate(s)), s.compared_steps,
        Duration(s.lost_ns_per_step), Percent(s.throughput_loss));
  }
  return absl::StrFormat("Rank %d makes the other%s wait: %s a step each; the step is %s longer for it, %s.",
                         s.rank, whom, Duration(s.caused.per_step_ns), Duration(s.lost_ns_per_step),
                         Percent(s.throughput_loss));
}

std::string Place(const Straggler& s) {
  return s.device.has_value() ? absl::StrCat("GPU ", *s.device, " on ", s.host) : s.host;
}

// What the kernel says of its host, if that is worse than elsewhere: a sentence; else empty.
std::string HostText(const Straggler& s) {
  const std::vector<std::string> clauses = HostLoadClauses(s.load, &s.usual_load);
  return clauses.empty() ? "" : absl::StrCat(" On its host ", absl::StrJoin(clauses, "; "), ".");
}

std::string CauseText(const Straggler& s) {
  switch (s.cause) {
    case Cause::kSlowKernels:
      if (s.kernel.empty())
        return absl::StrFormat("Its kernels take %.2f x as long as on the other ranks.", s.slowdown);
      return absl::StrFormat(
          "Its kernels take %.2f x as long as the same kernels elsewhere: %s %s a call against %s, "
          "launched equally often.",
          s.slowdown, KernelName(s.kernel, 40), Duration(s.kernel_mean_ns), Duration(s.kernel_elsewhere_ns));
    case Cause::kMoreWork:
      return absl::StrFormat("It launches %.2f x the work of the other ranks: %s more compute a step.",
                             s.work_ratio, Duration(s.cause_ns_per_step));
    case Cause::kLateLaunch:
      return absl::StrFormat(
          "Its device is idle %s a step longer, because its host launches late; its kernels run "
          "as fast as elsewhere.",
          Duration(s.cause_ns_per_step));
    case Cause::kLateInput:
      return absl::StrFormat("It waits %s a step longer for its input.", Duration(s.cause_ns_per_step));
    case Cause::kSlowCopies:
      return absl::StrFormat("It copies %s a step longer than the others.", Duration(s.cause_ns_per_step));
    default:
      return "Nothing in its step tells why.";
  }
}

std::string Why(const Straggler& s) { return absl::StrCat(CauseText(s), HostText(s)); }

std::string Advice(const Straggler& s) {
  std::string host = HostLoadAdvice(s.load, &s.usual_load, absl::StrCat("rank ", s.rank));
  // Slow kernels and more of them have causes of their own.
  if (!host.empty() && s.cause != Cause::kSlowKernels && s.cause != Cause::kMoreWork) return host;
  switch (s.cause) {
    case Cause::kSlowKernels:
      return absl::StrCat("Look at clocks, power limit and temperature of ", Place(s),
                          ", and at who else uses it.");
    case Cause::kMoreWork:
      return "Give all ranks batches of equal cost (lengths, experts, layers of a stage).";
    case Cause::kLateLaunch:
      return absl::StrCat("Look at the host of that rank on ", s.host,
                          ": CPU clocks, other load, NUMA binding, garbage collection.");
    case Cause::kLateInput:
      return "Look at its data loader: workers, storage, its shard of the data.";
    case Cause::kUnknown:
      return absl::StrCat("Look at ", Place(s), " and at the rank's part of the timeline: gpuprobe trace.");
    default:
      return absl::StrCat("Compare the PCIe link of ", Place(s), " with the others'.");
  }
}

// Two groups of ranks, one of which costs the other a step's kLeastShare.
std::optional<RankGroups> GroupsThatWait(const Report& report) {
  std::optional<RankGroups> groups = RankGroupsOf(report);
  if (groups.has_value() && groups->lost_ns < kGroupShare * report.communication.step_ns) groups.reset();
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
    if (waited_for) {
      f.cost_ns_per_step = s.since_step.has_value() ? LongerWhenLate(s) : s.lost_ns_per_step;
      if (s.since_step.has_value())
        absl::StrAppend(&f.advice, " Before step ", *s.since_step,
                        " it kept up with the others: look for what changed then.");
    } else {
      f.statement = absl::StrFormat(
          "Rank %d is slow: its kernels take %.2f x as long as the same kernels on the "
          "other ranks, %s more in all.",
          s.rank, s.slowdown, Duration(s.extra_ns));
      if (s.others_wait_mean_ns > 0)
        absl::StrAppend(&f.evidence, " In collectives each other rank waited ",
                        Duration(s.others_wait_mean_ns), " in all, rank ", s.rank, " ", Duration(s.wait_ns),
                        ".");
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
      {"It computes %s a step longer than the others.", [](const StepMeans& m) { return m.compute_ns; }},
      {"Its device is idle %s a step longer than the others' because of its host.",
       [](const StepMeans& m) { return m.host_bound_ns + m.sync_ns; }},
      {"It waits %s a step longer for its input than the others.",
       [](const StepMeans& m) { return m.input_ns; }},
      {"It copies %s a step longer than the others.", [](const StepMeans& m) { return m.copy_ns; }},
  };
  const char* text = nullptr;
  double most_ns = kLeastExplained * rank.caused.per_step_ns;
  for (const Part& part : kParts) {
    std::vector<double> others;
    for (const RankReport& other : report.ranks) {
      if (&other != &rank && other.step_means.steps > 0) others.push_back(part.of(other.step_means));
    }
    if (others.empty()) return "";
    const auto middle = others.begin() + static_cast<ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    const double excess_ns = part.of(rank.step_means) - *middle;
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
    return {.statement = "for whom is not known",
            .evidence = "",
            .advice = "Look at the timeline: gpuprobe trace."};
  }
  if (share < even + kOneRanksShare * (1 - even)) {
    return {.statement = "and no single rank is at fault",
            .evidence = absl::StrFormat(
                "Which rank comes last changes from step to step: none causes more of it than rank %s, %s.",
                last->label, Percent(share)),
            .advice = "Make the cost of a step equal (lengths of samples), and look for noise on the hosts."};
  }
  return {.statement = absl::StrFormat("%s of it for rank %s", Percent(share), last->label),
          .evidence = absl::StrFormat(
              "They waited for rank %s in %d of %d steps: too few to tell a slow rank from chance.%s",
              last->label, last->caused.steps_blamed, last->caused.steps, LongestPart(report, *last)),
          .advice = absl::StrFormat("Record more steps. If it stays rank %s, look at its data, its host and "
                                    "its GPU; if it changes, make the cost of a step equal.",
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
                                 ? absl::StrFormat("from step %d to step %d, in %d of %d steps in all",
                                                   s.stretch->first, s.stretch->second, late, steps)
                                 : absl::StrFormat("now and then, in %d of %d steps", late, steps);
    out.push_back(
        {.statement = absl::StrFormat("Rank %d makes the others wait %s: these are %s longer for it, and the "
                                      "average step %s, %s.",
                                      s.rank, when, Duration(LongerWhenLate(s)), Duration(s.lost_ns_per_step),
                                      Percent(s.throughput_loss)),
         .evidence = absl::StrCat(s.stretch.has_value() || s.caused.steps_blamed == 0
                                      ? ""
                                      : absl::StrCat("First in step ", s.caused.first_blamed_step,
                                                     ", last in step ", s.caused.last_blamed_step, ". "),
                                  "Each other rank waits ", Duration(s.caused.per_step_ns),
                                  " a step for it on average. ", Why(s)),
         .advice = absl::StrCat(Advice(s), " What comes and goes is often another process, or throttling."),
         .cost_ns_per_step = s.lost_ns_per_step});
  }
}

void TwoSpeeds(const Report& report, std::vector<Finding>& out) {
  const std::optional<RankGroups> groups = GroupsThatWait(report);
  if (!groups.has_value()) return;
  const double step_ns = report.communication.step_ns;
  std::string evidence = absl::StrFormat("%s takes them %s a step, the others %s.", groups->part,
                                         Duration(groups->slower_part_ns), Duration(groups->faster_part_ns));
  evidence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(evidence.front())));
  if (!report.conditions.differing.empty())
    absl::StrAppend(&evidence,
                    " What they run on differs: ", absl::StrJoin(report.conditions.differing, "; "), ".");
  out.push_back(
      {.statement = absl::StrFormat("The ranks are of two speeds: ranks %s need %s a step, ranks "
                                    "%s only %s and wait for them; the step "
                                    "is %s longer for it, %s.",
                                    RankList(groups->slower, kMostRanges), Duration(groups->slower_ns),
                                    RankList(groups->faster, kMostRanges), Duration(groups->faster_ns),
                                    Duration(groups->lost_ns), Percent(groups->lost_ns / step_ns)),
       .evidence = evidence,
       .advice = "Look for what the slower ranks have in common (type of device, host, power "
                 "limit, their data), or "
                 "give them less to do.",
       .cost_ns_per_step = groups->lost_ns});
}

void Imbalance(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  if (c.pipeline.has_value() || c.step_ns <= 0 || report.ranks.size() < 2) return;
  if (GroupsThatWait(report).has_value()) return;
  // What single ranks are at fault for, their findings say.
  const double waited_ns = c.exposed_wait_ns();
  double explained_ns = 0;
  for (const Straggler& s : report.stragglers) explained_ns += s.lost_ns_per_step;
  if (explained_ns >= kExplainedShare * waited_ns && explained_ns > 0) return;
  const double lost_ns = waited_ns - explained_ns;
  if (std::min(lost_ns, c.waited_ns) < kImbalanceShare * c.step_ns) return;
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
      absl::StrFormat("Ranks wait for each other %s a step each, %s; the step is %s longer for it, %s.",
                      Duration(c.waited_ns), f.statement, Duration(lost_ns), Percent(lost_ns / c.step_ns));
  f.cost_ns_per_step = lost_ns;
  out.push_back(std::move(f));
}

}  // namespace gpuprobe::analysis
