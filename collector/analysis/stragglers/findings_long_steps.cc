#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/stragglers/step_pattern.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

using Step = LongStepsReport::Step;

constexpr size_t kNamed = 6;  // steps
// A part that makes up this share of what the steps take longer is what they are about.
constexpr double kContentShare = 0.5;

bool IsKnown(const Step& step) { return step.last_rank.has_value() || step.last_gpu.has_value(); }

// Who was late. REQUIRES: it is known.
std::string LastOf(const Step& step) {
  std::string rank = step.last_rank.has_value() ? absl::StrCat("rank ", *step.last_rank) : "";
  if (!step.last_gpu.has_value()) return rank;
  return absl::StrCat("GPU ", *step.last_gpu, rank.empty() ? "" : " of ", rank);
}

bool IsStraggler(const Report& report, const Step& step) {
  return IsKnown(step) &&
         std::any_of(report.stragglers.begin(), report.stragglers.end(), [&](const Straggler& s) {
           return s.lost_ns_per_step > 0 && s.rank == step.last_rank &&
                  (s.gpu.empty() || s.device == step.last_gpu);
         });
}

// Where ranks end their steps in different places, the others wait in the next step for what the straggler
// did in this one.
bool IsBeforeStragglers(const Report& report, const LongStepsReport& all, const Step& step) {
  constexpr double kLittle = 0.2;
  const double longer_ns = step.time_ns - all.usual_ns;
  if (IsKnown(step) && step.late_by_ns > kLittle * longer_ns) return false;
  return std::any_of(all.steps.begin(), all.steps.end(), [&](const Step& next) {
    return next.step == step.step + 1 && 2 * next.late_by_ns > longer_ns && IsStraggler(report, next);
  });
}

// A hang that went by has a finding of its own.
bool IsPastHang(const Report& report, double longer_ns) {
  constexpr double kAlike = 0.2;
  return std::any_of(report.past_hangs.begin(), report.past_hangs.end(), [&](const PastHang& past) {
    const auto hung_ns = static_cast<double>(past.until_ns - past.since_ns);
    return std::abs(longer_ns - hung_ns) < kAlike * hung_ns;
  });
}

// "8 (60.1 ms), 15 (59.9 ms) and 7 more"
std::string Names(const std::vector<Step>& steps) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(steps.size(), kNamed); ++i)
    names.push_back(absl::StrCat(steps[i].step, " (", Duration(steps[i].time_ns), ")"));
  if (steps.size() > kNamed)
    return absl::StrCat(absl::StrJoin(names, ", "), " and ", steps.size() - kNamed, " more");
  return Listed(names);
}

// Who was last in them; that it is the same one each time, chance may have given.
std::string Who(const std::vector<Step>& steps, size_t ranks) {
  if (ranks < 2) return "";
  const bool nobody = std::none_of(steps.begin(), steps.end(), IsKnown);
  if (nobody) return "No rank was later than the others; the delay affected all ranks.";
  const bool one = std::all_of(steps.begin(), steps.end(), [&](const Step& s) {
    return s.last_rank == steps.front().last_rank && s.last_gpu == steps.front().last_gpu;
  });
  if (!one) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < std::min(steps.size(), kNamed); ++i) {
      parts.push_back(IsKnown(steps[i]) ? absl::StrCat(LastOf(steps[i]), " in step ", steps[i].step)
                                        : absl::StrCat("none in step ", steps[i].step));
    }
    return absl::StrCat("Latest: ", absl::StrJoin(parts, ", "), ".");
  }
  double late_by_ns = 0;
  for (const Step& s : steps) late_by_ns += s.late_by_ns / static_cast<double>(steps.size());
  std::string text =
      absl::StrFormat("The other %s waited for %s in %s, %s%s.",
                      steps.front().last_gpu.has_value() ? "GPUs" : "ranks", LastOf(steps.front()),
                      steps.size() == 1   ? "it"
                      : steps.size() == 2 ? "both"
                                          : "all of them",
                      Duration(late_by_ns), steps.size() == 1 ? "" : " on average");
  const double by_chance = std::pow(static_cast<double>(ranks), static_cast<double>(steps.size()) - 1);
  if (steps.size() == 1) {
    absl::StrAppend(&text, " One occurrence does not implicate a rank.");
  } else {
    absl::StrAppend(&text, " The same rank would be last by chance in ",
                    by_chance < 2000 ? absl::StrFormat("one of %.0f such runs", by_chance)
                                     : "fewer than one of 2,000 such runs",
                    ".");
  }
  return text;
}

// "rank 0's host ", if it was late in all in which one was.
std::string WhoseHost(const std::vector<Step>& steps, const Report& report) {
  const Step* first = nullptr;
  for (const Step& step : steps) {
    if (!step.last_rank.has_value()) continue;
    if (first != nullptr && first->last_rank != step.last_rank) return "the host ";
    first = &step;
  }
  return report.ranks.size() < 2 || first == nullptr ? "the host "
                                                     : absl::StrCat("rank ", *first->last_rank, "'s host ");
}

// What they have that the others lack, most time first.
struct ContentWords {
  double ns = 0;
  bool host = false;  // the host's doing
  const char* text;   // "%s" stands for a time
  const char* advice;
};

std::vector<ContentWords> ContentOf(const LongStepsReport& all) {
  const LongStepsReport::Content& c = all.content;
  std::vector<ContentWords> words = {
      {c.input_ns, true, "the GPU waits %s longer for input",
       "The loader starts anew or falls behind in them: persistent_workers=True, more prefetching, and what "
       "an epoch's end does."},
      {c.after_copy_ns, true, "the host copies data back and then launches nothing, %s longer",
       "They write a checkpoint or metrics: copy to pinned memory and write from another thread "
       "(torch.distributed.checkpoint.async_save), or less often."},
      {c.pause_ns - c.after_copy_ns, true, "the host pauses %s longer (nothing recorded says why)",
       "Garbage collection, logging, evaluation on the CPU or a lock would look so: gpuprobe stacks PID, "
       "or NVTX ranges around these parts, tell."},
      {c.memory_ns, true, "the host allocates and releases GPU memory %s longer",
       "The allocator goes to the driver in them: torch.cuda.empty_cache(), memory that is nearly full, or "
       "new shapes."},
      {c.sync_ns, true, "the GPU is idle %s longer after synchronising calls",
       "Look for what is read or printed in these steps only."},
      {c.host_bound_ns, true, "late launches leave the GPU idle %s longer",
       "Recompilation, autotuning or logging of tensors make the host slow in them."},
      {c.compute_ns, false, "kernels compute %s longer",
       "An evaluation, a longer batch, or a slower clock: gpuprobe report --step NUMBER says which kernels."},
      {c.exposed_comm_ns, false, "exposed communication takes %s longer on every rank",
       "The network, or ranks that are not recorded here."},
      {c.copy_ns, false, "copies take %s longer",
       "Checkpoints and evaluation copy more; so do pageable buffers."},
  };
  std::erase_if(words, [](const ContentWords& w) { return w.ns <= 0; });
  std::stable_sort(words.begin(), words.end(),
                   [](const ContentWords& a, const ContentWords& b) { return a.ns > b.ns; });
  return words;
}

// ", every 20 steps,", ", 5 of them every 20 steps,", or nothing.
std::string HowOften(const LongStepsReport& all) {
  if (!all.pattern.has_value()) return "";
  const std::string every = PatternText(*all.pattern);
  if (all.pattern->others == 0) return absl::StrCat(", ", every, ",");
  return absl::StrCat(", ", all.steps.size() - all.pattern->others, " of them ", every, ",");
}

void LongSteps(const Report& report, std::vector<Finding>& out) {
  if (!report.long_steps.has_value()) return;
  const LongStepsReport& all = *report.long_steps;
  // A straggler's finding is not repeated here.
  std::vector<Step> steps;
  FindingSubject about;
  double longer_ns = 0;
  for (const Step& step : all.steps) {
    if (IsStraggler(report, step) || IsBeforeStragglers(report, all, step) ||
        IsPastHang(report, step.time_ns - all.usual_ns))
      continue;
    steps.push_back(step);
    about.steps.push_back(step.step);
    longer_ns += step.time_ns - all.usual_ns;
  }
  if (steps.empty()) return;
  const double cost_ns = longer_ns / static_cast<double>(all.compared_steps);
  if (cost_ns < thresholds::kLongStepsCostStepShare * all.usual_ns) return;  // the others cost the rest
  const double each_ns = longer_ns / static_cast<double>(steps.size());
  const LongStepsReport::Content& c = all.content;
  const double host_ns = c.input_ns + c.pause_ns + c.sync_ns + c.host_bound_ns;
  const HostPlaceReport* const seen = ExplainedBy(all.host_places, each_ns);
  const bool named = seen != nullptr && !seen->no_cpu;  // it does something that takes long on any machine
  if (!named && Starved(report) && host_ns >= kContentShare * each_ns) return;
  // Hosts had no CPU for longer than these steps cost, nothing brings them back, and what would not come of
  // that is not most of them.
  const double seen_ns = c.compute_ns + c.copy_ns + c.memory_ns + c.after_copy_ns;
  if (!named && !all.pattern.has_value() && seen_ns < kContentShare * each_ns &&
      CpuWaitOfBusyMachine(HostLoadsOf(report)) * all.usual_ns >= cost_ns)
    return;
  const bool told = steps.size() == all.steps.size();
  std::string what;
  std::string advice =
      "Check what happens in these steps: checkpoints, evaluation, garbage collection, storage; gpuprobe "
      "export prints their records. A longer run shows whether it is chance or a rank.";
  if (const std::vector<ContentWords> content = told ? ContentOf(all) : std::vector<ContentWords>{};
      !content.empty() && content.front().ns >= kContentShare * each_ns) {
    const ContentWords& most = content.front();
    const HostPlaceReport* place = most.host ? ExplainedBy(all.host_places, most.ns) : nullptr;
    const std::string text =
        place == nullptr ? most.text : absl::StrReplaceAll(most.text, {{" (nothing recorded says why)", ""}});
    what = absl::StrCat(steps.size() == 1 ? "In it, " : "In them, on average, ",
                        absl::StrReplaceAll(text, {{"%s", Duration(most.ns)}}), " than in the median step",
                        place == nullptr
                            ? ""
                            : absl::StrCat(", and the host ", absl::StripPrefix(HostDoesWhat(*place), "it ")),
                        ". ");
    advice = place == nullptr ? most.advice : AdviceFor(*place, kDoItElsewhere);
  } else if (told && seen != nullptr) {
    what = absl::StrCat("Before or in ", steps.size() == 1 ? "it, " : "them, ", WhoseHost(steps, report),
                        absl::StripPrefix(HostDoesWhat(*seen), "it "), ". ");
    advice = AdviceFor(*seen, kDoItElsewhere);
  }
  out.push_back({.statement = absl::StrFormat(
                     "%d of %s%s %s much longer than the typical %s: %s. %s the average step by %s (%s).",
                     steps.size(), ComparedSteps(report, all.compared_steps), told ? HowOften(all) : "",
                     steps.size() == 1 ? "takes" : "take", Duration(all.usual_ns), Names(steps),
                     steps.size() == 1 ? "It lengthens" : "They lengthen", Duration(cost_ns),
                     Percent(cost_ns / (all.usual_ns + cost_ns))),
                 .evidence = what + Who(steps, report.ranks.size()),
                 .advice = advice,
                 .cost_ns_per_step = cost_ns,
                 .about = about});
}

Moment AtLongestStep(const Report& report) {
  if (!report.long_steps.has_value() || report.long_steps->steps.empty()) return {};
  const auto& steps = report.long_steps->steps;
  return {.step = std::max_element(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
                    return a.time_ns < b.time_ns;
                  })->step};
}

}  // namespace

std::vector<FindingRule> LongStepRules() {
  return {
      {"long-steps", FindingTopic::kSteps, Severity::kInfo,
       absl::StrFormat(
           "up to %s of the steps exceed the median by %s, and by %s as much as the shortest "
           "step falls below it, and by %s of what the longest does; they cost the average step %s or more",
           condition::Share(thresholds::kLongStepsShare), condition::Share(thresholds::kLongStepMedianShare),
           condition::Ratio(thresholds::kLongStepSpreadRatio),
           condition::Share(thresholds::kLongStepOfLongestShare),
           condition::Share(thresholds::kLongStepsCostStepShare)),
       LongSteps, "step_times", AtLongestStep},
  };
}

}  // namespace gpuprobe::analysis
