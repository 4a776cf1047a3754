#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "collector/analysis/finding_rules.h"

namespace gpuprobe::analysis {
namespace {

constexpr char kHealthy[] = "healthy";
constexpr char kLongSteps[] = "long-steps";
constexpr char kSharedDevice[] = "shared-device";

constexpr FindingRule kRules[] = {
    {"out-of-memory", Severity::kError,
     "an allocation was refused for want of memory, and the process ended within 10 s without another step",
     OutOfMemory},
    {"allocation-failed", Severity::kError,
     "an allocation was refused for want of memory, and the process went on", AllocationFailed},
    {"rank-died", Severity::kError,
     "a rank was killed, crashed, or exited with an error, and others lived on for 2 s or ended otherwise; "
     "not "
     "after a hang, which ends ranks, too",
     RankDied},
    {"hang-mismatch", Severity::kError,
     "ranks issued the same collective with another operation, size, type or root", HangMismatch},
    {"hang-missing-rank", Severity::kError,
     "ranks have waited in a collective for --hang-after, and others, which did nothing else, did not issue "
     "it, or cannot run (stopped, frozen, dead)",
     HangMissingRank},
    {"hang-all-issued", Severity::kError,
     "all ranks issued a collective, and it has not finished for --hang-after", HangAllIssued},
    {"hang-over", Severity::kWarning,
     "a hang was reported while the job ran, and it went on after all; not for a rank that was stopped, "
     "which "
     "rank-stopped tells",
     HangOver},
    {"rank-stopped", Severity::kWarning,
     "no thread of a rank could run for a second or more: it was stopped, held by a debugger, or its cgroup "
     "was "
     "frozen",
     RankStopped},
    {kSharedDevice, Severity::kWarning, "two ranks or more ran kernels on the same device", SharedDevices},
    {"memory-leak", Severity::kWarning,
     "what is held between steps grows: rising by Mann and Kendall's test (z > 3), to the end, by 1 % or "
     "more",
     MemoryLeak},
    {"memory-pressure", Severity::kWarning,
     "at most 8 % of a device's memory was left at the high-water mark", MemoryPressure},
    {"fragmentation", Severity::kWarning,
     "PyTorch's allocator held more than 1.5 x what tensors had, at the peaks", Fragmentation},
    {"pool-footprint", Severity::kWarning,
     "a stream-ordered memory pool held more than 1.5 x what its allocations used, and 256 MiB more, at the "
     "peaks",
     PoolFootprint},
    {"straggler-slow-gpu", Severity::kWarning,
     "a rank's kernels take at least 1.10 x as long as the same kernels elsewhere, with a robust z-score of "
     "3.5 over the ranks",
     StragglerSlowGpu},
    {"straggler-more-work", Severity::kWarning,
     "others wait 3.5 % of the step for a rank that launches more threads than the others",
     StragglerMoreWork},
    {"straggler-late-launch", Severity::kWarning,
     "others wait 3.5 % of the step for a rank whose host launches late", StragglerLateLaunch},
    {"straggler-late-input", Severity::kWarning,
     "others wait 3.5 % of the step for a rank that waits for its input", StragglerLateInput},
    {"straggler-slow-copies", Severity::kWarning,
     "others wait 3.5 % of the step for a rank whose copies take longer", StragglerSlowCopies},
    {"straggler-unexplained", Severity::kWarning,
     "others wait 3.5 % of the step for a rank, and no part of its step is as much longer than theirs; "
     "not in a pipeline",
     StragglerUnexplained},
    {"straggler-intermittent", Severity::kWarning,
     "one rank is late by 5 % of the step in less than 60 % of its steps, and not from some step on to the "
     "end, more often than by chance (p < 0.001), and these steps are 2.5 % longer for it",
     StragglerIntermittent},
    {"two-speeds", Severity::kWarning,
     "a quarter of the ranks or more, up to three quarters, takes longer than all others by 5 % and three "
     "times what "
     "ranks of each group differ by, and the others wait 3.5 % of the step for it",
     TwoSpeeds},
    {"imbalance", Severity::kWarning,
     "ranks wait for each other 10 % of the step, now for this one, now for that one, or in too few steps to "
     "blame one; silent beside a straggler, and in a pipeline",
     Imbalance},
    {"slow-network", Severity::kWarning,
     "3 % of the step is exposed communication, and the same transfers take twice as long since some step, "
     "or, over several hosts, twice as long where some hosts take part as where others do; or 10 % is, and "
     "large messages reach less than 25 % of the link's peak, or, over several hosts and without "
     "--link-peak, less than an eighth of what the reference design for these devices carries between hosts",
     SlowNetwork},
    {"bucket-too-large", Severity::kWarning,
     "10 % of the step is exposed communication, and one bucket of 128 MiB or more holds half of what is "
     "reduced",
     BucketTooLarge},
    {"bucket-too-small", Severity::kWarning,
     "3 % of the step is exposed communication, and gradients are reduced in 32 or more pieces of 4 MiB or "
     "less",
     BucketTooSmall},
    {"communication-unheard", Severity::kWarning,
     "10 % of the step is exposed communication, mostly with ranks that do not record here: slow transfers "
     "cannot be told from waiting, and what is said of communication otherwise is not",
     CommunicationUnheard},
    {"pipeline-bubble", Severity::kWarning,
     "stages of a pipeline neither compute nor communicate within themselves for 10 % of the step",
     PipelineBubble},
    {"communication-bound", Severity::kWarning,
     "20 % of the step is exposed communication, the waiting for late ranks left out", CommunicationBound},
    {"poor-overlap", Severity::kWarning,
     "3 % of the step is exposed communication, and less than 85 % of what could be hidden is", PoorOverlap},
    {"input-bound", Severity::kWarning,
     "the median rank's device waits for input for at least 10 % of the step", InputBound},
    {"launch-bound", Severity::kWarning,
     "the median rank's device runs dry because of late launches for at least 10 % of the step", LaunchBound},
    {"sync-in-loop", Severity::kWarning,
     "after a synchronising call the median rank's device has nothing to do for at least 5 % of the step",
     SyncInLoop},
    {"pageable-copies", Severity::kWarning, "copies through pageable memory take at least 1 % of the step",
     PageableCopies},
    {"low-mfu", Severity::kWarning, "model FLOPs utilisation, if it was asked for, is below 30 %", LowMfu},
    {"mixed-hardware", Severity::kWarning, "ranks differ in device, memory, driver, CUDA or NCCL version",
     MixedHardware},
    {"options-mistaken", Severity::kWarning,
     "what an option says cannot be: MFU above 100 %, transfers above 110 % of --link-peak, a step marker "
     "that marks no steps",
     OptionsMistaken},
    {"rank-cut-off", Severity::kWarning, "a process ended without saying goodbye", RankCutOff},
    {"records-lost", Severity::kWarning, "a record was lost", RecordsLost},
    {kHealthy, Severity::kInfo, "no other finding is a warning or an error", nullptr},
    {"warmup-dominated", Severity::kInfo, "steps after the warm-up are less than half of the run",
     WarmupDominated},
    {kLongSteps, Severity::kInfo,
     "up to 15 % of the steps take 25 % longer than the median, and 3 x as much longer as the shortest is "
     "shorter; they cost the average step 2 % or more",
     LongSteps},
    {"ranks-missing", Severity::kInfo, "fewer ranks were heard than the job has", RanksMissing},
    {"capture-incomplete", Severity::kWarning,
     "GPU times are missing, the last flush was cut short, or what was recorded is damaged",
     CaptureIncomplete},
    {"costly-capture", Severity::kWarning,
     "being recorded takes 10 % of the processes' time or more: our code, and what CUPTI adds to launches",
     CostlyCapture},
    {"graph-nodes", Severity::kInfo,
     "recording CUDA graphs node by node may take 25 % of the processes' time, or 1 % of their nodes have no "
     "valid times",
     GraphNodes},
    {"no-step-recorded", Severity::kWarning,
     "only some steps were to be recorded, and the program took none of them", NoStepRecorded},
    {"clock-stepped", Severity::kWarning, "the host's clock was stepped by 1 ms or more", ClockStepped},
    {"detail-dropped", Severity::kInfo, "single records were dropped to hold --keep", DetailDropped},
};

// What is wrong, or soon ends the job, comes before what costs time, and that before what is merely worth
// knowing.
int Group(const Finding& f) {
  if (f.severity == Severity::kError || f.ends_job || f.id == kSharedDevice) return 0;
  if (f.cost_ns_per_step.has_value()) return 1;
  return f.severity == Severity::kWarning ? 2 : 3;
}

}  // namespace

std::span<const FindingRule> FindingRules() { return kRules; }

std::vector<Finding> FindingsOf(const Report& report) {
  std::vector<Finding> findings;
  for (const FindingRule& rule : kRules) {
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
