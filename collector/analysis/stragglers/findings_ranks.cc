#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/median.h"
#include "collector/analysis/stragglers/rank_groups.h"
#include "collector/analysis/stragglers/step_pattern.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/analysis/work/gpu_health.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

using Cause = Straggler::Cause;

constexpr size_t kMostRanges = 8;    // in a list of ranks
constexpr uint64_t kNamedSteps = 8;  // in a list of steps

// As a sentence begins.
std::string Sentence(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::vector<int> About(const Straggler& s) {
  return s.rank.has_value() ? std::vector<int>{*s.rank} : std::vector<int>{};
}

// Steps in which it is late: compared by step, or by what was waited for it.
uint64_t LateCount(const Straggler& s) { return s.late_steps > 0 ? s.late_steps : s.caused.steps_blamed; }
uint64_t ComparedCount(const Straggler& s) { return s.late_steps > 0 ? s.compared_steps : s.caused.steps; }

// How much longer a step is when the rank is late.
double LongerWhenLate(const Straggler& s) {
  return s.lost_ns_per_step * static_cast<double>(ComparedCount(s)) /
         static_cast<double>(std::max<uint64_t>(LateCount(s), 1));
}

// Each figure of the steps in which it is late.
Straggler WhenLate(const Straggler& s) {
  const double share =
      static_cast<double>(LateCount(s)) / static_cast<double>(std::max<uint64_t>(ComparedCount(s), 1));
  Straggler then = s;
  if (share > 0) then.cause_ns_per_step /= share;
  return then;
}

// Each figure as the mean over all steps since it became late: it need not be late in every one of them.
// REQUIRES: it became late at a step.
Straggler SinceThen(const Report& report, const Straggler& s) {
  Straggler then = s;
  if (!report.steps.has_value()) return then;
  const auto steps = [&](uint64_t before) {
    return static_cast<double>(std::max(report.steps->count, before + 1) - before);
  };
  const double since = steps(*s.since_step) / steps(report.steps->warmup_count);
  then.lost_ns_per_step /= since;
  then.cause_ns_per_step /= since;
  const double late = static_cast<double>(s.late_steps) / static_cast<double>(s.compared_steps);
  if (s.slowdown_when_late > 0) then.slowdown_when_late = 1 + (s.slowdown_when_late - 1) * late / since;
  return then;
}

std::string Who(const Report& report, const Straggler& s) {
  if (s.slow_stage) {
    return absl::StrFormat(
        "%s holds up the pipeline: its stage takes %s longer per step than the others, which lengthens the "
        "step by %s (%s).",
        Sentence(s.Name()), Duration(s.cause_ns_per_step), Duration(s.lost_ns_per_step),
        Percent(s.throughput_loss));
  }
  if (s.caused.per_step_ns <= 0) return "";
  // A rank that was started again has several processes.
  const size_t heard = static_cast<size_t>(std::max(report.conditions.ranks_heard, 0));
  const bool gpus = !s.gpu.empty();
  const size_t others = (heard > 1 && !gpus ? heard : report.ranks.size()) - 1;
  const std::string whom =
      others == 1 ? (gpus ? "other GPU" : "other rank") : absl::StrCat("other ", others, " ", s.Peers());
  if (s.since_step.has_value()) {
    return absl::StrFormat(
        "The %s %s waited for %s since step %d, which lengthens each step since then by %s; averaged "
        "over all %s, by %s (%s).",
        whom, others == 1 ? "has" : "have", s.Name(), *s.since_step,
        Duration(SinceThen(report, s).lost_ns_per_step), ComparedSteps(report, s.compared_steps),
        Duration(s.lost_ns_per_step), Percent(s.throughput_loss));
  }
  return absl::StrFormat("The %s %s for %s, which lengthens the step by %s (%s).", whom,
                         others == 1 ? "waits" : "wait", s.Name(), Duration(s.lost_ns_per_step),
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

constexpr size_t kNameLength = 40;

// A sentence on the clock of its GPU beside the others', if both are known.
std::string ClocksText(const Straggler& s) {
  const std::string text = ClockText(s.gpu_health, s.usual_gpu_health, s.slowdown, s.Peers());
  return text.empty() ? "" : absl::StrCat(" ", text);
}

std::string SlowerText(const Straggler& s) {
  if (s.kernel.empty())
    return absl::StrFormat("It computes %s longer per step than the others; which kernels was not recorded.",
                           Duration(s.cause_ns_per_step));
  std::string text = absl::StrFormat(
      "Its kernels run %.2fx slower than the same kernels on the other %s (%s vs %s for %s); launch "
      "counts match.",
      s.slowdown, s.Peers(), Duration(s.kernel_mean_ns), Duration(s.kernel_elsewhere_ns),
      KernelName(s.kernel, kNameLength));
  absl::StrAppend(&text, ClocksText(s));
  if (s.work.either && CompareClocks(s.gpu_health, s.usual_gpu_health) != ClockComparison::kLower)
    absl::StrAppend(&text, " ", KernelName(s.work.as_fast, kNameLength),
                    " is as fast as elsewhere: a limit on power or clocks slows matrix products first, but "
                    "more work in the same launches would look alike.");
  return text;
}

// The kernel that has more to do.
std::string MoreText(const Straggler& s) {
  const WorkDifference::Kernel& k = s.work.kernel;
  std::string text = absl::StrFormat("It has %.2fx the work of the other %s", s.work.ratio, s.Peers());
  if (k.name.empty()) return text + ".";
  const std::string name = KernelName(k.name, kNameLength);
  switch (k.change) {
    case WorkDifference::Change::kCalls:
      if (k.only_here)
        return absl::StrFormat("%s. %s: %.4g calls, %s per step that no other %s has.", text, name, k.calls,
                               Duration(k.extra_ns), s.Peer());
      return absl::StrFormat("%s. %s: %.4g calls per step, elsewhere %.4g, which takes %s longer.", text,
                             name, k.calls, k.usual_calls, Duration(k.extra_ns));
    case WorkDifference::Change::kThreads:
      return absl::StrFormat("%s. %s launches %.2fx the threads and takes %s instead of %s.", text, name,
                             k.thread_ratio, Duration(k.mean_ns), Duration(k.usual_mean_ns));
    default:
      return absl::StrFormat(
          "%s. %s takes %s, elsewhere %s, with as many threads, and %s is as fast as elsewhere: the same "
          "launches have more to do.",
          text, name, Duration(k.mean_ns), Duration(k.usual_mean_ns),
          KernelName(s.work.as_fast, kNameLength));
  }
}

const char* HostDoesText(const Straggler& s) {
  switch (s.host_does) {
    case Straggler::HostDoes::kSynchronises:
      return "its host launches late after synchronising calls";
    case Straggler::HostDoes::kAllocates:
      return "its host allocates and releases GPU memory";
    case Straggler::HostDoes::kPauses:
      if (!HostText(s).empty()) return "its host launches late";
      return "its host launches late: it pauses, and nothing recorded says why";
    case Straggler::HostDoes::kCopiesOut:
      return "its host copies data back and then launches nothing, as when it writes a checkpoint or metrics";
    default:
      return "its host launches late";
  }
}

// What its host does, if that explains most of the delay.
const HostPlaceReport* HostPlaceOf(const Straggler& s) {
  const double late_ns = s.persistent ? s.lost_ns_per_step : LongerWhenLate(s);
  return ExplainedBy(s.host_places, s.cause == Cause::kUnknown ? late_ns : s.cause_ns_per_step);
}

// `per_step`: " per step", or nothing where the figures are of the steps in which it is late.
std::string CauseText(const Straggler& s, const char* per_step = " per step") {
  switch (s.cause) {
    case Cause::kSlowKernels:
      return SlowerText(s);
    case Cause::kMoreWork:
      return MoreText(s);
    case Cause::kLateLaunch: {
      const HostPlaceReport* place = HostPlaceOf(s);
      return absl::StrFormat(
          "Its GPU is idle %s longer%s because %s; its kernels run as fast as on the other %s.",
          Duration(s.cause_ns_per_step), per_step,
          place == nullptr ? HostDoesText(s) : absl::StrCat("of its host: ", HostDoesWhat(*place)),
          s.Peers());
    }
    case Cause::kLateInput: {
      const HostPlaceReport* place = HostPlaceOf(s);
      return absl::StrFormat("It waits %s longer%s for its input%s.", Duration(s.cause_ns_per_step), per_step,
                             place == nullptr ? "" : absl::StrCat(": ", HostDoesWhat(*place)));
    }
    case Cause::kSlowCopies:
      return absl::StrFormat("Its copies take %s longer%s than the others'.%s", Duration(s.cause_ns_per_step),
                             per_step,
                             HasSlowerLink(s.gpu_health, s.usual_gpu_health)
                                 ? absl::StrCat(" ", LinkText(s.gpu_health, s.usual_gpu_health))
                                 : "");
    default: {
      const HostPlaceReport* place = HostPlaceOf(s);
      if (place == nullptr) return "No part of its step explains the delay.";
      return absl::StrCat("It comes late to its step because of its host: ", HostDoesWhat(*place), ".");
    }
  }
}

// Of the steps since it became late: what is known of all steps alone says so.
std::string WhySince(const Report& report, const Straggler& s) {
  const Straggler then = SinceThen(report, s);
  if (s.cause == Cause::kSlowKernels && s.slowdown_when_late > 1) {
    std::string text = absl::StrFormat("Since then it computes %s longer per step, %.2fx the other %s' time",
                                       Duration(then.cause_ns_per_step), then.slowdown_when_late, s.Peers());
    if (s.kernel.empty()) return text + ".";
    return absl::StrFormat("%s; launch counts match. Averaged over all %s, %s took %s, elsewhere %s.%s", text,
                           ComparedSteps(report, s.compared_steps), KernelName(s.kernel, kNameLength),
                           Duration(s.kernel_mean_ns), Duration(s.kernel_elsewhere_ns), ClocksText(s));
  }
  std::string text = CauseText(then);
  if (s.cause == Cause::kUnknown) return text;
  text.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(text.front())));
  const bool of_all = s.cause == Cause::kMoreWork || s.cause == Cause::kSlowKernels;
  return absl::StrCat(of_all
                          ? absl::StrCat("Averaged over all ", ComparedSteps(report, s.compared_steps), ", ")
                          : "Since then, ",
                      text);
}

std::string Why(const Report& report, const Straggler& s) {
  return absl::StrCat(s.since_step.has_value() ? WhySince(report, s) : CauseText(s), HostText(s));
}

std::string Advice(const Straggler& s) {
  std::string host = HostLoadAdvice(s.load, &s.usual_load, s.Name());
  // Slow kernels and more of them have causes of their own.
  if (!host.empty() && s.cause != Cause::kSlowKernels && s.cause != Cause::kMoreWork) return host;
  if (const HostPlaceReport* place = HostPlaceOf(s); place != nullptr)
    return AdviceFor(*place,
                     absl::StrCat("Only ", s.Name(), " does it, and the others wait. ", kDoItElsewhere));
  switch (s.cause) {
    case Cause::kSlowKernels:
      switch (CompareClocks(s.gpu_health, s.usual_gpu_health)) {
        case ClockComparison::kLower:
          return ClockAdvice(s.gpu_health, s.usual_gpu_health, Place(s));
        case ClockComparison::kAsHigh:
          return absl::StrCat(
              "Look for other processes on ", Place(s),
              " (nvidia-smi), and for errors of its memory; more work in the same launches would look "
              "alike.");
        default:
          return absl::StrCat("Check ", Place(s),
                              ": clocks, power limit, temperature, and other processes on it.");
      }
    case Cause::kMoreWork:
      if (s.slow_stage) return "Move this work, or layers of its stage, to other stages.";
      return "Give all ranks batches of equal cost (sequence lengths, experts, layers per stage).";
    case Cause::kLateLaunch:
      if (s.host_does == Straggler::HostDoes::kCopiesOut)
        return "The others wait while it writes: copy to pinned memory and write from another thread, or "
               "less often.";
      if (s.host_does == Straggler::HostDoes::kAllocates)
        return "Remove torch.cuda.empty_cache() from its loop, and allocate once; compare its memory with "
               "the others'.";
      if (s.host_does == Straggler::HostDoes::kPauses)
        return absl::StrCat(
            "See what its host does: gpuprobe stacks on ", s.host,
            ", or NVTX ranges; logging and garbage collection look so. Check its CPU clocks and load.");
      return absl::StrCat("Check the rank's host, ", s.host,
                          ": CPU clocks, other load, NUMA binding, garbage collection.");
    case Cause::kLateInput:
      return "Check its data loader: workers, storage, its shard of the data; and what it alone does between "
             "steps: logging before the batch looks the same.";
    case Cause::kUnknown:
      return absl::StrCat("Check ", Place(s), " and the rank's records: gpuprobe export.");
    default:
      return absl::StrCat("Compare the PCIe link of ", Place(s), " with those of the other ranks.");
  }
}

template <Cause cause>
void OfCause(const Report& report, std::vector<Finding>& out) {
  if (RankGroupsThatWait(report).has_value()) return;  // they are not single ones
  for (const Straggler& s : report.stragglers) {
    const bool waited_for = s.lost_ns_per_step > 0;
    if (s.cause != cause || (waited_for && !s.persistent)) continue;
    // Slower kernels are worth knowing although nobody waits; a late rank that nobody waits for is not late.
    if (!waited_for && (cause != Cause::kSlowKernels || s.extra_ns <= 0)) continue;
    Finding f{.statement = Who(report, s), .evidence = Why(report, s), .advice = Advice(s)};
    f.about = {.ranks = About(s), .first_step = s.since_step};
    if (waited_for) {
      f.cost_ns_per_step =
          s.since_step.has_value() ? SinceThen(report, s).lost_ns_per_step : s.lost_ns_per_step;
      if (s.since_step.has_value())
        absl::StrAppend(&f.advice, " Before step ", *s.since_step,
                        " it kept up with the others: find out what changed then.");
    } else {
      f.statement = absl::StrFormat(
          "%s is slow: its kernels run %.2fx slower than the same kernels on the other %s, %s more "
          "in total.",
          Sentence(s.Name()), s.slowdown, s.Peers(), Duration(s.extra_ns));
      if (s.others_wait_mean_ns > 0)
        absl::StrAppend(&f.evidence, " In collectives, each of the other ", s.Peers(), " waited ",
                        Duration(s.others_wait_mean_ns), " in total and ", s.Name(), " ", Duration(s.wait_ns),
                        ".");
    }
    out.push_back(std::move(f));
  }
}

// In a pipeline ranks wait for each other by design, and behind a slow stage for one that is not at fault.
void StragglerUnexplained(const Report& report, std::vector<Finding>& out) {
  if (report.communication.pipeline.has_value()) return;
  OfCause<Cause::kUnknown>(report, out);
}

std::vector<std::string> StepNames(const Straggler& s) {
  std::vector<std::string> names;
  for (const uint64_t step : s.step_numbers) names.push_back(absl::StrCat(step));
  return names;
}

// "in 4 of 149 steps: every 30 steps, 30, 60, 90 and 120"
std::string WhenText(const Report& report, const Straggler& s) {
  const std::string count = absl::StrCat(LateCount(s), " of ", ComparedSteps(report, ComparedCount(s)));
  const bool all_known = s.step_numbers.size() == s.late_steps && s.late_steps > 0;
  const std::string numbers = all_known && s.late_steps <= kNamedSteps
                                  ? absl::StrCat(s.late_steps == 1 ? "step " : "steps ", Listed(StepNames(s)))
                                  : "";
  if (s.pattern.has_value()) {
    return absl::StrCat(PatternText(*s.pattern), " (",
                        numbers.empty() ? absl::StrCat(count, ", first in step ", s.pattern->first)
                                        : absl::StrCat(numbers, "; ", count),
                        ")");
  }
  if (s.stretch.has_value())
    return absl::StrFormat("from step %d to step %d (in %s overall)", s.stretch->first_step,
                           s.stretch->last_step, count);
  return absl::StrCat("intermittently (in ", count, numbers.empty() ? "" : absl::StrCat(": ", numbers), ")");
}

// Why these steps are longer.
std::string WhyThen(const Straggler& s) {
  const Straggler then = WhenLate(s);
  std::string why = CauseText(then, "");
  if (s.cause == Cause::kSlowKernels && s.slowdown_when_late > 1)
    why = absl::StrFormat("It computes %s longer (%.2fx the others' time).", Duration(then.cause_ns_per_step),
                          s.slowdown_when_late);
  else if (s.cause == Cause::kMoreWork || s.cause == Cause::kUnknown || s.cause == Cause::kSlowKernels)
    return absl::StrCat(why, HostText(s));  // of all steps
  why.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(why.front())));
  why = absl::StrCat("In these steps, ", why);
  return absl::StrCat(why, HostText(s));
}

// What comes back at a fixed distance is the program's, unless something else is seen.
std::string IntermittentAdvice(const Straggler& of_all) {
  const Straggler s = WhenLate(of_all);
  if (!s.pattern.has_value())
    return absl::StrCat(Advice(s),
                        " Intermittent delays are often caused by another process or by throttling.");
  if (s.cause == Cause::kSlowKernels)
    return absl::StrCat(
        Advice(s), " It recurs ", PatternText(*s.pattern),
        ": what comes back with the program's steps is usually the program's, on this rank alone.");
  const bool seen = HostPlaceOf(s) != nullptr ||
                    (s.cause == Cause::kLateLaunch && (s.host_does == Straggler::HostDoes::kCopiesOut ||
                                                       s.host_does == Straggler::HostDoes::kAllocates));
  if (seen) return Advice(s);
  return absl::StrCat("Find out what ", s.Name(), " alone does ", PatternText(*s.pattern),
                      ": a checkpoint, logging, evaluation, garbage collection.");
}

// Two ranks or more whose hosts are late now and then, at the same distance.
std::vector<const Straggler*> ByTurns(const Report& report) {
  for (const Straggler& first : report.stragglers) {
    if (!first.pattern.has_value() || first.cause != Cause::kLateLaunch) continue;
    std::vector<const Straggler*> alike;
    for (const Straggler& s : report.stragglers) {
      if (!s.persistent && s.lost_ns_per_step > 0 && s.pattern == first.pattern && s.cause == first.cause)
        alike.push_back(&s);
    }
    if (alike.size() > 1) return alike;
  }
  return {};
}

Finding OfTurns(const Report& report, const std::vector<const Straggler*>& ranks) {
  Finding f;
  double lost_ns = 0;
  double share = 0;
  for (const Straggler* s : ranks) {
    for (const int rank : About(*s)) f.about.ranks.push_back(rank);
    lost_ns += s->lost_ns_per_step;
    share += s->throughput_loss;
  }
  std::sort(f.about.ranks.begin(), f.about.ranks.end());
  const Straggler& first = *ranks.front();
  f.statement = absl::StrFormat(
      "Ranks %s are late by turns, each %s, and the others wait; this lengthens the average step by %s (%s).",
      RankList(f.about.ranks, kMostRanges), PatternText(*first.pattern), Duration(lost_ns), Percent(share));
  f.evidence = absl::StrCat(Sentence(first.Name()), " ", WhenText(report, first), ". ", WhyThen(first));
  f.advice =
      "They probably do the same thing in different steps, such as Python's garbage collection, logging or "
      "renewing a cache. If all ranks do it in the same step, they wait once: gc.disable(), and gc.collect() "
      "every n-th step.";
  f.cost_ns_per_step = lost_ns;
  return f;
}

// The latest rank is late for a reason that all ranks have: over the run, half of the others wait for their
// input about as long.
void NameInputOfAll(const Report& report, const Straggler& s, Finding& f) {
  if (s.cause != Cause::kLateInput || !s.rank.has_value()) return;
  double own_ns = 0;
  std::vector<double> others_ns;
  for (const RankReport& r : report.ranks) {
    if (r.step_means.steps == 0) continue;
    if (r.rank == s.rank)
      own_ns = r.step_means.input_ns;
    else
      others_ns.push_back(r.step_means.input_ns);
  }
  if (others_ns.size() < 2) return;
  const double usual_ns = UpperMedian(std::move(others_ns));
  if (own_ns <= 0 || usual_ns < thresholds::kInputOfAllShare * own_ns) return;
  absl::StrAppend(&f.evidence, absl::StrFormat(" The other ranks wait for their input, too: %s per step on "
                                               "average, this one %s.",
                                               Duration(usual_ns), Duration(own_ns)));
  f.advice =
      "Loading is slow on all ranks, and this one is latest most often: more data-loader workers, "
      "prefetching, preprocessing ahead of time; check whether the storage keeps up.";
}

void StragglerIntermittent(const Report& report, std::vector<Finding>& out) {
  // One trouble, and one finding.
  const std::vector<const Straggler*> by_turns = ByTurns(report);
  if (!by_turns.empty()) out.push_back(OfTurns(report, by_turns));
  for (const Straggler& s : report.stragglers) {
    if (s.persistent || s.lost_ns_per_step <= 0) continue;
    if (std::find(by_turns.begin(), by_turns.end(), &s) != by_turns.end()) continue;
    if (s.cause == Cause::kUnknown && report.communication.pipeline.has_value()) continue;
    FindingSubject about{.ranks = About(s)};
    if (s.stretch.has_value()) {
      about.first_step = s.stretch->first_step;
      about.last_step = s.stretch->last_step;
    } else if (s.late_steps > 0 && s.late_steps <= kNamedSteps && s.step_numbers.size() == s.late_steps) {
      about.steps = s.step_numbers;
    }
    std::string evidence;
    // Calls were compared, not steps: these are the steps counted above.
    if (s.late_steps == 0 && s.caused.steps_blamed > 0)
      evidence = absl::StrCat("First in step ", s.caused.first_blamed_step, ", last in step ",
                              s.caused.last_blamed_step, ". ");
    const std::string advice = IntermittentAdvice(s);
    out.push_back(
        {.statement = absl::StrFormat("The other %s wait for %s %s; this lengthens these "
                                      "steps by %s, and the average step by %s (%s).",
                                      s.Peers(), s.Name(), WhenText(report, s), Duration(LongerWhenLate(s)),
                                      Duration(s.lost_ns_per_step), Percent(s.throughput_loss)),
         .evidence = absl::StrCat(evidence, WhyThen(s)),
         .advice = advice,
         .cost_ns_per_step = s.lost_ns_per_step,
         .about = about});
    NameInputOfAll(report, s, out.back());
  }
}

Moment AtStraggler(const Report& report) {
  if (report.stragglers.empty()) return {};
  const Straggler& worst = report.stragglers.front();
  if (worst.stretch.has_value()) return {.step = (worst.stretch->first_step + worst.stretch->last_step) / 2};
  if (worst.since_step.has_value()) return {.step = worst.since_step};
  if (worst.caused.steps_blamed > 0) return {.step = worst.caused.last_blamed_step};
  return {};
}

}  // namespace

std::vector<FindingRule> RankRules() {
  return {
      {"straggler-slow-gpu", FindingTopic::kRanks, Severity::kWarning,
       absl::StrFormat("a rank holds up the others because its kernels are slower, or, even if "
                       "nobody waits for it, they take at least %s as long as the same kernels on the other "
                       "ranks, with a robust z-score of %g or more across ranks",
                       condition::Ratio(thresholds::kSlowKernelRatio), thresholds::kRobustZScore),
       OfCause<Cause::kSlowKernels>, "caused_wait", AtStraggler},
      {"straggler-more-work", FindingTopic::kRanks, Severity::kWarning,
       "a rank holds up the others because it has more to compute: more calls or threads than they have, or "
       "longer calls of some kernels while others are as fast as elsewhere",
       OfCause<Cause::kMoreWork>, "caused_wait", AtStraggler},
      {"straggler-late-launch", FindingTopic::kRanks, Severity::kWarning,
       "a rank holds up the others because its host launches late", OfCause<Cause::kLateLaunch>,
       "caused_wait", AtStraggler},
      {"straggler-late-input", FindingTopic::kRanks, Severity::kWarning,
       "a rank holds up the others because it waits for its input", OfCause<Cause::kLateInput>, "caused_wait",
       AtStraggler},
      {"straggler-slow-copies", FindingTopic::kRanks, Severity::kWarning,
       "a rank holds up the others because its copies take longer", OfCause<Cause::kSlowCopies>,
       "caused_wait", AtStraggler},
      {"straggler-unexplained", FindingTopic::kRanks, Severity::kWarning,
       absl::StrCat("a rank holds up the others, and no part of its step explains ",
                    condition::Share(thresholds::kExplainedDelayShare),
                    " of the delay; not reported in a pipeline"),
       StragglerUnexplained, "caused_wait", AtStraggler},
      {"straggler-intermittent", FindingTopic::kRanks, Severity::kWarning,
       absl::StrCat("a rank holds up the others in less than ",
                    condition::Share(thresholds::kPersistentStepsShare),
                    " of its steps, and not from some step on to the end of the run"),
       StragglerIntermittent, "caused_wait", AtStraggler},
  };
}

}  // namespace gpuprobe::analysis
