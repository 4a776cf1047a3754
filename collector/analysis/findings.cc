#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/report.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/clock/device_clock.h"
#include "collector/model/job/late_steps.h"

namespace gpuprobe::analysis {
namespace {

constexpr char kHealthy[] = "healthy";
constexpr char kLongSteps[] = "long-steps";
constexpr char kSharedDevice[] = "shared-device";

namespace t = thresholds;

// "2.5 %" of 0.025.
std::string Share(double share) { return absl::StrFormat("%g %%", share * 100); }
// "1.1x" of 1.1.
std::string Ratio(double ratio) { return absl::StrFormat("%gx", ratio); }
std::string Seconds(uint64_t ns) { return absl::StrFormat("%g s", static_cast<double>(ns) / 1e9); }
std::string Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

std::vector<FindingRule> JobRules() {
  return {
      {"out-of-memory", Severity::kError,
       absl::StrCat("an allocation failed (out of memory), and the process ended within ",
                    Seconds(t::kEndedByRefusalNs), " without another step"),
       OutOfMemory},
      {"allocation-failed", Severity::kError, "an allocation failed (out of memory), and the process went on",
       AllocationFailed},
      {"rank-died", Severity::kError,
       absl::StrCat("a rank was killed, crashed or exited with an error, and other ranks ran for another ",
                    Seconds(t::kEndedTogetherNs),
                    " or ended differently; not reported after a hang, which also ends ranks"),
       RankDied},
      {"hang-mismatch", Severity::kError,
       "ranks issued the same collective with a different operation, size, type or root", HangMismatch},
      {"hang-missing-rank", Severity::kError,
       "ranks have waited in a collective for --hang-after seconds, while others, which did nothing else, "
       "did not issue it or cannot run (stopped, frozen, dead)",
       HangMissingRank},
      {"hang-all-issued", Severity::kError,
       "all ranks issued a collective, and it has not finished within --hang-after seconds", HangAllIssued},
      {"hang-over", Severity::kWarning,
       "a hang was reported while the job ran, and the job then continued; a stopped rank is reported as "
       "rank-stopped instead",
       HangOver},
      {"rank-stopped", Severity::kWarning,
       absl::StrCat("no thread of a rank could run for ", Seconds(t::kStopNs),
                    " or more: it was stopped, held by a debugger, or its cgroup was frozen"),
       RankStopped},
      {kSharedDevice, Severity::kWarning,
       "two or more processes ran kernels on the same GPU at the same time", SharedDevices},
      {"duplicate-rank", Severity::kWarning,
       "two or more processes that used a GPU were the same rank at the same time", DuplicateRanks},
  };
}

std::vector<FindingRule> MemoryRules() {
  return {
      {"memory-leak", Severity::kWarning,
       absl::StrFormat("memory held between steps keeps growing: a rising trend by the Mann-Kendall test (z "
                       "> %g), in %d rises or more, up to the end of the run, by %s or more",
                       t::kLeakZScore, t::kLeakRises, Share(t::kLeakLevelShare)),
       MemoryLeak},
      {"memory-pressure", Severity::kWarning,
       absl::StrCat("at most ", Share(t::kMemoryLeftShare),
                    " of a GPU's memory was left at the high-water mark"),
       MemoryPressure},
      {"fragmentation", Severity::kWarning,
       absl::StrCat("PyTorch's allocator reserved more than ", Ratio(t::kFragmentedRatio),
                    " what tensors used, and at least ", Mib(t::kFragmentedBytes), " more, comparing peaks"),
       Fragmentation},
      {"pool-footprint", Severity::kWarning,
       absl::StrCat("a stream-ordered memory pool reserved more than ", Ratio(t::kPoolRatio),
                    " what its allocations used, and at least ", Mib(t::kPoolBytes),
                    " more, comparing peaks"),
       PoolFootprint},
  };
}

std::vector<FindingRule> RankRules() {
  return {
      {"straggler-slow-gpu", Severity::kWarning,
       absl::StrFormat("a rank holds up the others (see below) because its kernels are slower, or, even if "
                       "nobody waits for it, they take at least %s as long as the same kernels on the other "
                       "ranks, with a robust z-score of %g or more across ranks",
                       Ratio(t::kSlowKernelRatio), t::kRobustZScore),
       StragglerSlowGpu},
      {"straggler-more-work", Severity::kWarning,
       "a rank holds up the others because it has more to compute: it launches more threads than they do",
       StragglerMoreWork},
      {"straggler-late-launch", Severity::kWarning,
       "a rank holds up the others because its host launches late", StragglerLateLaunch},
      {"straggler-late-input", Severity::kWarning,
       "a rank holds up the others because it waits for its input", StragglerLateInput},
      {"straggler-slow-copies", Severity::kWarning,
       "a rank holds up the others because its copies take longer", StragglerSlowCopies},
      {"straggler-unexplained", Severity::kWarning,
       absl::StrCat("a rank holds up the others, and no part of its step explains ",
                    Share(t::kExplainedDelayShare), " of the delay; not reported in a pipeline"),
       StragglerUnexplained},
      {"straggler-intermittent", Severity::kWarning,
       absl::StrCat("a rank holds up the others in less than ", Share(t::kPersistentStepsShare),
                    " of its steps, and not from some step on to the end of the run"),
       StragglerIntermittent},
      {"two-speeds", Severity::kWarning,
       absl::StrFormat(
           "ranks fall into two groups, each of at least %d ranks and 1 in %d of all; the groups are %s "
           "apart, which is %s the spread within each, and the faster one waits for %s of the step",
           t::kGroupRanks, t::kGroupOneIn, Share(t::kGroupsApartShare), Ratio(t::kGroupsApartRatio),
           Share(t::kWaitedStepShare)),
       TwoSpeeds},
      {"imbalance", Severity::kWarning,
       absl::StrCat("ranks wait for each other for ", Share(t::kImbalanceStepShare),
                    " of the step, for changing ranks or in too few steps to blame one; not reported in a "
                    "pipeline, or where stragglers explain ",
                    Share(t::kStragglersExplainShare), " of the waiting"),
       Imbalance},
  };
}

std::vector<FindingRule> CommunicationRules() {
  return {
      {"slow-network", Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and the same transfers became %s slower at "
                       "some step or, across hosts, are %s slower where certain hosts take part; or %s of "
                       "the step is, and large messages reach less than %s of the link's peak or, across "
                       "hosts and without --link-peak, less than %s of the reference design for these GPUs",
                       Share(t::kExposedStepShare), Ratio(t::kSlowedRatio), Ratio(t::kSlowedRatio),
                       Share(t::kIndirectExposedStepShare), Share(t::kSlowLinkPeakShare),
                       Share(t::kSlowReferenceShare)),
       SlowNetwork},
      {"bucket-too-large", Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and one bucket of %s or more holds %s of "
                       "the bytes reduced per step",
                       Share(t::kIndirectExposedStepShare), Mib(t::kHugeBucketBytes),
                       Share(t::kHugeBucketBytesShare)),
       BucketTooLarge},
      {"bucket-too-small", Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and gradients are reduced in %g or more "
                       "calls per step that average %s or less and take %s of the transfer time",
                       Share(t::kExposedStepShare), t::kTinyBucketCalls, Mib(t::kTinyBucketBytes),
                       Share(t::kTinyBucketTimeShare)),
       BucketTooSmall},
      {"communication-unheard", Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and %s of the time in calls is spent with "
                       "ranks that are not recorded here; slow transfers cannot be distinguished from "
                       "waiting, so this replaces the other findings about communication",
                       Share(t::kIndirectExposedStepShare), Share(t::kUnheardTimeShare)),
       CommunicationUnheard},
      {"pipeline-bubble", Severity::kWarning,
       absl::StrCat("pipeline stages neither compute nor communicate internally for ",
                    Share(t::kBubbleStepShare), " of the step"),
       PipelineBubble},
      {"communication-bound", Severity::kWarning,
       absl::StrCat(Share(t::kBoundStepShare),
                    " of the step is exposed communication, excluding waits for late ranks"),
       CommunicationBound},
      {"poor-overlap", Severity::kWarning,
       absl::StrFormat(
           "%s of the step is exposed communication, and less than %s of what compute could hide is hidden",
           Share(t::kExposedStepShare), Share(t::kPoorOverlapShare)),
       PoorOverlap},
  };
}

std::vector<FindingRule> StepRules() {
  return {
      {"input-bound", Severity::kWarning,
       absl::StrCat("the median rank's GPU waits for input for ", Share(t::kInputStepShare),
                    " of the step or more"),
       InputBound},
      {"launch-bound", Severity::kWarning,
       absl::StrCat("the median rank's GPU is idle because of late launches for ", Share(t::kLaunchStepShare),
                    " of the step or more"),
       LaunchBound},
      {"sync-in-loop", Severity::kWarning,
       absl::StrCat("the median rank's GPU is idle after synchronising calls for ", Share(t::kSyncStepShare),
                    " of the step or more"),
       SyncInLoop},
      {"pageable-copies", Severity::kWarning,
       absl::StrCat("copies through pageable memory take ", Share(t::kPageableStepShare),
                    " of the step or more"),
       PageableCopies},
      {"low-mfu", Severity::kWarning,
       absl::StrCat("model FLOPs utilisation (MFU), if requested, is below ", Share(t::kLowMfuShare)),
       LowMfu},
      {"mixed-hardware", Severity::kWarning, "ranks differ in GPU, memory, driver, CUDA or NCCL version",
       MixedHardware},
      {"options-mistaken", Severity::kWarning,
       absl::StrFormat("an option contradicts the records: MFU above %s, transfers above %s of --link-peak, "
                       "or a step marker that marks no steps",
                       Share(t::kMostMfuShare), Share(t::kMostLinkPeakShare)),
       OptionsMistaken},
  };
}

std::vector<FindingRule> RunRules() {
  return {
      {"rank-cut-off", Severity::kWarning, "a process exited uncleanly, or the collector ended before it",
       RankCutOff},
      {"records-lost", Severity::kWarning, "records were lost", RecordsLost},
      {kHealthy, Severity::kInfo,
       "no other finding is a warning or an error, and no steps are unusually long", nullptr},
      {"warmup-dominated", Severity::kInfo,
       absl::StrCat("warm-up, startup and everything else but steady steps take ", Share(t::kWarmupRunShare),
                    " of the run or more"),
       WarmupDominated},
      {kLongSteps, Severity::kInfo,
       absl::StrFormat("up to %s of the steps exceed the median by %s, and by %s as much as the shortest "
                       "step falls below it; they cost the average step %s or more",
                       Share(t::kLongStepsShare), Share(t::kLongStepMedianShare),
                       Ratio(t::kLongStepSpreadRatio), Share(t::kLongStepsCostStepShare)),
       LongSteps},
      {"ranks-missing", Severity::kInfo, "some ranks did not report", RanksMissing},
      {"capture-incomplete", Severity::kWarning,
       absl::StrFormat("GPU times are missing, more than 1 in %d records came too late for their steps, the "
                       "last flush was cut short, or the recorded data is damaged",
                       t::kLateRecordsOneIn),
       CaptureIncomplete},
      {"costly-capture", Severity::kWarning,
       absl::StrCat(
           "profiling takes ", Share(t::kCostlyTimeShare),
           " of the processes' time or more: our own code plus the time that CUPTI adds to launches"),
       CostlyCapture},
      {"graph-nodes", Severity::kInfo,
       absl::StrFormat("recording CUDA graphs node by node may take %s of the processes' time, or %s of the "
                       "nodes have no valid times",
                       Share(t::kGraphNodesTimeShare), Share(t::kInvalidNodesShare)),
       GraphNodes},
      {"no-step-recorded", Severity::kWarning,
       "only some steps were to be recorded, and the program ran none of them", NoStepRecorded},
      {"clock-stepped", Severity::kWarning,
       absl::StrFormat("the host's clock was stepped by %g ms or more",
                       static_cast<double>(t::kClockStepNs) / 1e6),
       ClockStepped},
      {"device-clock", Severity::kInfo,
       absl::StrFormat("CUPTI's clock differed from the system's by more than %g ms",
                       static_cast<double>(model::DeviceClock::kAgreesWithinNs) / 1e6),
       DeviceClock},
      {"detail-dropped", Severity::kInfo, "individual records were dropped to stay within --keep",
       DetailDropped},
  };
}

std::vector<FindingRule> AllRules() {
  std::vector<FindingRule> all;
  for (const auto& subject :
       {JobRules(), MemoryRules(), RankRules(), CommunicationRules(), StepRules(), RunRules()})
    all.insert(all.end(), subject.begin(), subject.end());
  return all;
}

// First errors and whatever soon ends the job, then findings that cost time, then those merely worth knowing.
int Group(const Finding& f) {
  if (f.severity == Severity::kError || f.ends_job || f.id == kSharedDevice) return 0;
  if (f.cost_ns_per_step.has_value()) return 1;
  return f.severity == Severity::kWarning ? 2 : 3;
}

}  // namespace

std::span<const FindingRule> FindingRules() {
  static const std::vector<FindingRule>& rules = *new std::vector<FindingRule>(AllRules());
  return rules;
}

std::string HoldsUpText() {
  return absl::StrFormat(
      "A rank holds up the others if it is late by %s of the step more often than by chance (p < %g), which "
      "lengthens the steps in which it is late by %s and the average step by %s. Where steps cannot be "
      "compared because records were lost: if each other rank waits %s of the step for it, with a robust "
      "z-score of %g or more across ranks and in %s of the steps (of two ranks, %s as long as it waits "
      "itself). A pipeline stage: if its neighbour waits %s of the step for it, and it takes %s of the step "
      "longer than the other stages.",
      Share(model::LateSteps::kLateShares[0]), t::kLatePValue, Share(t::kLateLongerStepShare),
      Share(t::kLateCostStepShare), Share(t::kWaitedStepShare), t::kRobustZScore, Share(t::kBlamedStepsShare),
      Ratio(t::kWaitedOfTwoRatio), Share(t::kWaitedStepShare), Share(t::kSlowStageStepShare));
}

std::vector<Finding> FindingsOf(const Report& report) {
  std::vector<Finding> findings;
  for (const FindingRule& rule : FindingRules()) {
    const size_t before = findings.size();
    if (rule.find != nullptr) rule.find(report, findings);
    for (size_t i = before; i < findings.size(); ++i) {
      findings[i].id = rule.id;
      findings[i].severity = rule.severity;
    }
  }
  const bool well = std::none_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.severity != Severity::kInfo || f.id == kLongSteps;
  });
  if (well && !report.ranks.empty()) {
    std::vector<Finding> healthy;
    Healthy(report, healthy);
    healthy.front().id = kHealthy;
    findings.insert(findings.begin(), healthy.front());
  }
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (Group(a) != Group(b)) return Group(a) < Group(b);
    return a.cost_ns_per_step.value_or(0) > b.cost_ns_per_step.value_or(0);
  });
  return findings;
}

}  // namespace gpuprobe::analysis
