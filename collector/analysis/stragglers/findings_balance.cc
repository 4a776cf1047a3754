// Ranks that wait for each other, where no single one is at fault.
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
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/median.h"
#include "collector/analysis/stragglers/rank_groups.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kRangesOfGroup = 8;  // in its list of ranks

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
       [](const StepMeans& m) { return m.host_ns(); }},
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
        .evidence = absl::StrFormat("The %s that arrives last changes from step to step; %s causes "
                                    "the largest share of the waiting, %s.",
                                    last->is_device ? "GPU" : "rank", last->Name(), Percent(share)),
        .advice =
            "Balance the cost of a step across ranks (sample lengths), and check for noise on the hosts."};
  }
  const std::string statement = absl::StrFormat("%s of it for %s", Percent(share), last->Name());
  // What a busy machine explains is no straggler, however often it is the same rank.
  if (2 * last->caused.steps_blamed > last->caused.steps &&
      last->host_load.waits_for_cpu >= kBusyMachineShare) {
    return {
        .statement = statement,
        .evidence = absl::StrFormat("They waited for %s in %d of %d steps, for less than threads of it were "
                                    "ready to run and got no CPU (%s of the time).%s",
                                    last->Name(), last->caused.steps_blamed, last->caused.steps,
                                    Percent(last->host_load.waits_for_cpu), LongestPart(report, *last)),
        .advice =
            "Record again while nothing else uses the host: its load explains the waiting as well as a "
            "slow rank would."};
  }
  return {.statement = statement,
          .evidence = absl::StrFormat(
              "They waited for %s in %d of %d steps: too few to distinguish a slow %s from chance.%s",
              last->Name(), last->caused.steps_blamed, last->caused.steps, last->is_device ? "GPU" : "rank",
              LongestPart(report, *last)),
          .advice = absl::StrFormat("Record more steps. If it stays %s, check its data, its host and "
                                    "its GPU; if it changes, balance the cost of a step across ranks.",
                                    last->Name())};
}

// Of a part of the step, without the few steps that are another matter.
double SpreadOf(const model::Summary& part) { return part.p95 - part.p50; }

// Ranks arrive at different times because their inputs do: nothing else of their steps varies nearly as much.
void NameInput(const Report& report, double waited_ns, Finding& f) {
  if (!report.steps.has_value()) return;
  const StepsReport& s = *report.steps;
  const double others_ns = SpreadOf(s.compute_ns) + SpreadOf(s.copy_ns) + SpreadOf(s.host_bound_ns);
  if (SpreadOf(s.input_ns) <= thresholds::kVariesRatio * others_ns ||
      s.input_ns.mean < thresholds::kVariesWaitShare * waited_ns)
    return;
  absl::StrAppend(&f.evidence, f.evidence.empty() ? "" : " ",
                  absl::StrFormat("What varies is when their input comes: ranks wait %s per step for it on "
                                  "average, and %s or more in one step of 20.",
                                  Duration(s.input_ns.mean), Duration(s.input_ns.p95)));
  f.advice =
      "Make loading faster and more even on all ranks: more data-loader workers, prefetching, preprocessing "
      "ahead of time; check whether the storage keeps up.";
}

std::string GroupsAdvice(RankGroups::Why why) {
  constexpr char kCommon[] = "Find out what the slower ranks have in common: ";
  switch (why) {
    case RankGroups::Why::kInput:
      return absl::StrCat(kCommon, "data-loader workers, storage, the shards of the data they read.");
    case RankGroups::Why::kHost:
      return absl::StrCat(kCommon, "host, CPU clocks, other load, NUMA binding, code that only they run.");
    case RankGroups::Why::kCopies:
      return absl::StrCat(kCommon, "PCIe link, NUMA binding, pinned memory, bytes copied per step.");
    default:
      return absl::StrCat(kCommon, "GPU type, host, power limit, length of samples; or give them less work.");
  }
}

void TwoSpeeds(const Report& report, std::vector<Finding>& out) {
  const std::optional<RankGroups> groups = RankGroupsThatWait(report);
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
                                    RankList(groups->slower, kRangesOfGroup), Duration(groups->slower_ns),
                                    RankList(groups->faster, kRangesOfGroup), Duration(groups->faster_ns),
                                    Duration(groups->lost_ns), Percent(groups->lost_ns / step_ns)),
       .evidence = evidence,
       .advice = GroupsAdvice(groups->why),
       .cost_ns_per_step = groups->lost_ns,
       .about = {.ranks = groups->slower}});
}

void Imbalance(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  if (c.pipeline.has_value() || c.step_ns <= 0 || report.ranks.size() < 2) return;
  if (RankGroupsThatWait(report).has_value()) return;
  // Calls of a communicator that are off by one are compared with others than their own.
  if (std::any_of(report.hangs.begin(), report.hangs.end(), [](const Hang& hang) {
        return hang.kind == Hang::Kind::kMismatch && hang.mismatches_after > 0;
      }))
    return;
  // Ranks wait for those whose transfers go over that network.
  if (c.network.has_value() && c.network->slow.has_value() && !c.network->slow->hosts.empty()) return;
  // Waiting caused by single ranks belongs to their findings.
  const double waited_ns = c.exposed_wait_ns.value_or(0);
  double explained_ns = 0;
  for (const Straggler& s : report.stragglers) explained_ns += s.lost_ns_per_step;
  if (report.long_steps.has_value()) {  // in which single ranks were late
    for (const LongStepsReport::Step& step : report.long_steps->steps)
      explained_ns += step.late_by_ns / static_cast<double>(report.long_steps->compared_steps);
  }
  if (explained_ns >= thresholds::kStragglersExplainShare * waited_ns && explained_ns > 0) return;
  const double lost_ns = waited_ns - explained_ns;
  if (std::min(lost_ns, c.waited_ns) < thresholds::kImbalanceStepShare * c.step_ns) return;
  // Ranks that all wait for their input, or for their hosts, do not wait equally long: that is the cause
  // then. Hosts that get no CPU do so by turns, and each makes all others wait.
  double host_ns = 0;
  for (const RankReport& r : report.ranks)
    host_ns += r.step_means.input_ns + r.step_means.host_ns() + r.step_means.launch_gap_ns;
  const bool by_turns = CpuWaitOfBusyMachine(HostLoadsOf(report)) > 0;
  if (host_ns / (by_turns ? 1 : static_cast<double>(report.ranks.size())) > lost_ns) return;
  Finding f = OfBlame(report);
  f.statement = absl::StrFormat("Ranks wait for each other (%s), which lengthens the step by %s (%s).",
                                f.statement, Duration(lost_ns), Percent(lost_ns / c.step_ns));
  NameInput(report, lost_ns, f);
  f.cost_ns_per_step = lost_ns;
  out.push_back(std::move(f));
}

}  // namespace

std::vector<FindingRule> BalanceRules() {
  return {
      {"two-speeds", FindingTopic::kRanks, Severity::kWarning,
       absl::StrFormat(
           "ranks fall into two groups, each of at least %d ranks and 1 in %d of all; the groups are %s "
           "apart, which is %s the spread within each, and the faster one waits for %s of the step",
           thresholds::kGroupRanks, thresholds::kGroupOneIn, condition::Share(thresholds::kGroupsApartShare),
           condition::Ratio(thresholds::kGroupsApartRatio), condition::Share(thresholds::kWaitedStepShare)),
       TwoSpeeds, "compute_by_rank"},
      {"imbalance", FindingTopic::kRanks, Severity::kWarning,
       absl::StrCat("ranks wait for each other for ", condition::Share(thresholds::kImbalanceStepShare),
                    " of the step, for changing ranks or in too few steps to blame one; not reported in a "
                    "pipeline, or where stragglers explain ",
                    condition::Share(thresholds::kStragglersExplainShare), " of the waiting"),
       Imbalance, "caused_wait"},
  };
}

}  // namespace gpuprobe::analysis
