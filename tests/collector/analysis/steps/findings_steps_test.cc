// What findings conclude about the time of steps: hosts, input, and a few steps that are long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/collector/analysis/findings_fixture.h"

namespace gpuprobe::analysis {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Each rank has steps of 10 ms, in which `part` of the median one is `ns`.
Report WithPart(model::Summary StepsReport::*part, double ns) {
  Report r = Steady();
  ((*r.steps).*part).mean = ns;
  for (RankReport& rank : r.ranks) {
    rank.steps.emplace();
    rank.steps->time_ns = r.steps->time_ns;
    ((*rank.steps).*part).mean = ns;
  }
  return r;
}

TEST(LongStepsFinding, NamesTheStepsAndWhoWasLate) {
  Report r = Steady();
  EXPECT_TRUE(Of("long-steps", r).empty());
  r.steps->count = r.steps->warmup_count + 21;
  r.long_steps = LongStepsReport{.compared_steps = 21,
                                 .usual_ns = 32e6,
                                 .cost_ns = 56e6 / 21,
                                 .steps = {{8, 60e6, 6, 28e6}, {15, 60e6, 6, 27e6}},
                                 .content = {},
                                 .pattern = {}};
  auto found = Of("long-steps", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement,
            "2 of 21 steps take much longer than the typical 32.0 ms: 8 (60.0 ms) and 15 (60.0 ms). They "
            "lengthen the average step by 2.67 ms (7.7 %).");
  EXPECT_EQ(found[0].evidence,
            "The other ranks waited for rank 6 in both, 27.5 ms on average. The same rank would be last by "
            "chance in one of 8 such runs.");
  // What they have that others lack, if that is most of it.
  r.long_steps->content = {.compute_ns = 2e6, .input_ns = 20e6};
  EXPECT_THAT(
      Of("long-steps", r)[0].evidence,
      StartsWith("In them, on average, the GPU waits 20.0 ms longer for input than in the median step."));
  EXPECT_THAT(Of("long-steps", r)[0].advice, HasSubstr("persistent_workers"));
  r.long_steps->content.input_ns = 10e6;
  EXPECT_THAT(Of("long-steps", r)[0].evidence, StartsWith("The other ranks waited"));
  r.steps->count = r.steps->warmup_count + 3640;
  EXPECT_THAT(Of("long-steps", r)[0].statement,
              StartsWith("2 of 21 steps that all ranks reported (3,640 in all) take"));
  r.steps->count = r.steps->warmup_count + 21;
  // The threshold is that of the steps that this finding is about, not of a straggler's.
  for (auto& step : r.long_steps->steps) step.time_ns = 38e6;
  EXPECT_TRUE(Of("long-steps", r).empty()) << "0.57 of 32 ms";
  for (auto& step : r.long_steps->steps) step.time_ns = 60e6;
  r.long_steps->pattern = StepPattern{.every = 7, .length = 1};
  EXPECT_THAT(Of("long-steps", r)[0].statement, StartsWith("2 of 21 steps, every 7 steps, take"));
  r.long_steps->steps[1].last_rank = 2;
  EXPECT_THAT(Of("long-steps", r)[0].evidence, HasSubstr("Latest: rank 6 in step 8, rank 2 in step 15."));
  for (auto& step : r.long_steps->steps) step.last_rank.reset();
  EXPECT_THAT(Of("long-steps", r)[0].evidence, HasSubstr("No rank was later"));
  // What a straggler's finding says is not said twice.
  for (auto& step : r.long_steps->steps) step.last_rank = 3;
  r.stragglers = {SlowCopies()};
  EXPECT_TRUE(Of("long-steps", r).empty());
}

TEST(LowMfuFinding, NamesWhereTheStepGoesOnlyBelowThirtyPercent) {
  Report r = Steady();
  r.utilisation.asked = true;
  r.utilisation.type = NumberFormat::kBf16;
  EXPECT_TRUE(Of("low-mfu", r).empty()) << "it is not known";
  r.utilisation.mfu = 0.3;
  EXPECT_TRUE(Of("low-mfu", r).empty());
  r.utilisation.mfu = 0.23;
  r.compute.classes = {{.kernel_class = KernelClass::kGemm, .calls = 1, .total_ns = 1, .share = 0.55}};
  const auto found = Of("low-mfu", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement, "The step uses 23.0 % of the GPUs' bf16 peak (MFU).");
  EXPECT_THAT(found[0].evidence, HasSubstr("compute 90.0 %"));
  EXPECT_THAT(found[0].evidence, HasSubstr("attention take 55.0 %"));
}

// Its GPUs run out of work for 4 ms of each step, with 100 kernels in it.
Report LaunchesLate() {
  Report r = Steady();
  for (RankReport& rank : r.ranks) {
    rank.steps.emplace();
    rank.steps->time_ns = r.steps->time_ns;
    rank.steps->count = r.steps->count;
    rank.steps->host_bound_ns.mean = 4e6;
  }
  r.compute.kernels = 100 * r.steps->count * r.ranks.size();
  r.compute.calls_per_step = 100;
  return r;
}

TEST(LaunchBoundFinding, NeedsFiveStepsOfARankAndNotOfAll) {
  Report r = LaunchesLate();
  EXPECT_EQ(Of("launch-bound", r).size(), 1u);
  r.steps->count = 2;
  r.steps->warmup_count = 0;
  r.steps->time_ns.count = 16;
  EXPECT_TRUE(Of("launch-bound", r).empty());
}

TEST(LaunchBoundFinding, AdvisesNothingThatTheProgramDoesAlready) {
  Report r = LaunchesLate();
  const auto said = [&] { return Of("launch-bound", r)[0]; };
  EXPECT_THAT(said().evidence, Not(HasSubstr("of them.")));
  EXPECT_THAT(said().advice, StartsWith("CUDA graphs or torch.compile"));
  EXPECT_THAT(said().advice, HasSubstr("fused optimizers"));
  r.compute.fused_optimizer = true;
  EXPECT_THAT(said().advice, Not(HasSubstr("fused optimizers")));
  r.compute.compiled_kernels = r.compute.kernels / 4;
  EXPECT_THAT(said().evidence, EndsWith(" torch.compile made 25.0 % of them."));
  EXPECT_THAT(said().advice, HasSubstr("reduce-overhead"));
  for (RankReport& rank : r.ranks) rank.graph_kernels = r.compute.kernels / r.ranks.size() / 2;
  EXPECT_THAT(said().evidence, HasSubstr(" CUDA graphs launch 50.0 % of them."));
  EXPECT_THAT(said().advice, StartsWith("Move the kernels that are launched one by one"));
  for (RankReport& rank : r.ranks) rank.graph_kernels = r.compute.kernels / r.ranks.size();
  EXPECT_THAT(said().advice, StartsWith("Make fewer and longer graphs"));
}

TEST(LaunchBoundFinding, IsNotSaidOfAProgramThatLaunchesNoKernels) {
  Report r = LaunchesLate();
  r.compute.calls_per_step = 1;
  EXPECT_EQ(Of("launch-bound", r).size(), 1u) << "one kernel a step";
  r.compute.calls_per_step = 0.9;
  EXPECT_TRUE(Of("launch-bound", r).empty());
}

TEST(LaunchBoundFinding, CountsUntilShortKernelsStartIfTheGpuRunsDry) {
  Report r = LaunchesLate();
  const auto set = [&](double host_bound_ns, double gaps_ns) {
    r.steps->host_bound_ns.mean = host_bound_ns;
    r.steps->launch_gap_ns.mean = gaps_ns;
    for (RankReport& rank : r.ranks) rank.steps = *r.steps;
  };
  const double tenth_ns = 0.1 * r.steps->time_ns.mean;
  r.compute.short_kernels = r.compute.kernels;
  set(0.4 * tenth_ns, 0.8 * tenth_ns);
  const auto found = Of("launch-bound", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(*found[0].cost_ns_per_step, 1.2 * tenth_ns, 1);
  set(0.1 * tenth_ns, 1.5 * tenth_ns);
  EXPECT_TRUE(Of("launch-bound", r).empty()) << "it hardly ever runs dry";
  set(0.4 * tenth_ns, 0.8 * tenth_ns);
  r.compute.short_kernels = r.compute.kernels / 2;
  EXPECT_TRUE(Of("launch-bound", r).empty()) << "its kernels are long";
}

// Two ranks of which the slower one is blamed already, or not: what is said of the job holds for both.
TEST(InputBoundFinding, IsNotSaidOfOneRankOfTwo) {
  Report r = Steady();
  r.ranks.resize(2);
  for (RankReport& rank : r.ranks) {
    rank.steps.emplace();
    rank.steps->count = r.steps->count;
    rank.steps->input_ns.mean = 4e6;
  }
  EXPECT_EQ(Of("input-bound", r).size(), 1u);
  r.ranks[0].steps->input_ns.mean = 0.1e6;
  EXPECT_TRUE(Of("input-bound", r).empty());
  // Both wait, and one of them so much longer that the other waits for it.
  r.ranks[0].steps->input_ns.mean = 2e6;
  Straggler late;
  late.rank = 1;
  late.cause = Straggler::Cause::kLateInput;
  late.lost_ns_per_step = 2e6;
  r.stragglers.push_back(late);
  ASSERT_EQ(Of("input-bound", r).size(), 1u);
  EXPECT_DOUBLE_EQ(*Of("input-bound", r)[0].cost_ns_per_step, 2e6);
}

TEST(InputBoundFinding, StandsBelowAHangAndSaysThatItIsOfTheStepsBefore) {
  Report r = WithPart(&StepsReport::input_ns, 2e6);
  r.hangs.emplace_back();
  const uint64_t measured = r.steps->count - r.steps->warmup_count;
  const std::string window = absl::StrCat("Measured in the ", measured, " steps before the hang.");
  for (const bool idle : {false, true}) {
    r.hangs[0].idle = idle;
    const std::vector<Finding> findings = FindingsOf(r);
    const auto input = std::find_if(findings.begin(), findings.end(),
                                    [](const Finding& f) { return f.id == "input-bound"; });
    ASSERT_NE(input, findings.end());
    EXPECT_EQ(findings.front().id == "input-bound", idle);
    EXPECT_EQ(input->evidence.ends_with(window), !idle) << input->evidence;
  }
}

TEST(InputBoundFinding, LeavesAFewLongStepsToTheirOwnFinding) {
  Report r = WithPart(&StepsReport::input_ns, 3e6);
  EXPECT_EQ(Of("input-bound", r).size(), 1u);
  r.long_steps.emplace();
  r.long_steps->compared_steps = 20;
  r.long_steps->steps.resize(2);
  r.long_steps->content.input_ns = 30e6;
  EXPECT_TRUE(Of("input-bound", r).empty()) << "two steps have all of it";
  r.long_steps->content.input_ns = 10e6;
  ASSERT_EQ(Of("input-bound", r).size(), 1u);
  EXPECT_DOUBLE_EQ(*Of("input-bound", r)[0].cost_ns_per_step, 2e6) << "the others have the rest";
  for (RankReport& rank : r.ranks) rank.steps->input_ns.p50 = 2.5e6;
  EXPECT_DOUBLE_EQ(*Of("input-bound", r)[0].cost_ns_per_step, 2.5e6) << "the median step has more";
}

TEST(CpuStarvedFinding, ReplacesWhatAHostWithoutACpuLooksLike) {
  Report r = LaunchesLate();
  for (RankReport& rank : r.ranks) rank.host_load = {.observed_s = 5, .waits_for_cpu = 0.1};
  EXPECT_TRUE(Of("cpu-starved", r).empty()) << "10 % of a step of 10 ms is no reason for 4 ms";
  EXPECT_EQ(Of("launch-bound", r).size(), 1u);
  for (RankReport& rank : r.ranks) rank.host_load.waits_for_cpu = 0.5;
  ASSERT_EQ(Of("cpu-starved", r).size(), 1u);
  EXPECT_DOUBLE_EQ(*Of("cpu-starved", r)[0].cost_ns_per_step, 4e6) << "no more than GPUs are idle";
  EXPECT_TRUE(Of("launch-bound", r).empty());
  for (RankReport& rank : r.ranks)
    rank.host_load = {.observed_s = 5, .waits_for_cpu = 0.5, .throttled = 0.6, .quota_cpus = 2};
  EXPECT_THAT(Of("cpu-starved", r)[0].advice, StartsWith("Raise the CPU quota"));
  for (RankReport& rank : r.ranks) rank.steps->host_bound_ns.mean = 0.1e6;
  EXPECT_TRUE(Of("cpu-starved", r).empty()) << "their GPUs are busy all the same";
}

TEST(MemoryStarvedFinding, NeedsHostsThatStallAsLongAsTheirGpusAreIdle) {
  Report r = LaunchesLate();
  const auto stalls = [&](double share, double observed_s = 5) {
    for (RankReport& rank : r.ranks)
      rank.host_load = {.observed_s = observed_s, .memory_stall = share, .swapped_bytes = 3 << 20};
    return Of("memory-starved", r);
  };
  ASSERT_EQ(stalls(0.3).size(), 1u);
  EXPECT_DOUBLE_EQ(*stalls(0.3)[0].cost_ns_per_step, 3e6);
  EXPECT_DOUBLE_EQ(*stalls(0.5)[0].cost_ns_per_step, 4e6) << "no more than GPUs are idle";
  EXPECT_THAT(stalls(0.3)[0].evidence, HasSubstr("3.00 MiB of a process is swapped out"));
  EXPECT_TRUE(Of("cpu-starved", r).empty()) << "no thread was ready to run";

  EXPECT_TRUE(stalls(0.1).empty()) << "10 % of a step of 10 ms is no reason for 4 ms";
  EXPECT_TRUE(stalls(0.3, 600).empty()) << "steps are little of what was observed";
  stalls(0);
  r.ranks[0].host_load.memory_stall = 0.9;
  EXPECT_TRUE(Of("memory-starved", r).empty()) << "one rank's host alone";
  stalls(0.3);
  for (RankReport& rank : r.ranks) rank.steps->host_bound_ns.mean = 0.1e6;
  EXPECT_TRUE(Of("memory-starved", r).empty()) << "their GPUs are busy all the same";
}

TEST(HealthyFinding, SaysThatHostsHadNoCpu) {
  Report r = WithPart(&StepsReport::input_ns, 0.1e6);
  for (RankReport& rank : r.ranks) {
    rank.steps->time_ns.total = 500'000'000;
    rank.host_load = {.observed_s = 0.6, .waits_for_cpu = 0.04};
  }
  EXPECT_EQ(Of("healthy", r)[0].evidence, "");
  for (RankReport& rank : r.ranks) rank.host_load.waits_for_cpu = 0.13;
  EXPECT_THAT(Of("healthy", r)[0].evidence,
              StartsWith("Hosts are ready to run and have no CPU 13.0 % of the time"));
}

TEST(MemoryCallsFinding, StandsAlthoughHostsWaitForACpu) {
  Report r = WithPart(&StepsReport::memory_ns, 3e6);
  for (RankReport& rank : r.ranks) {
    rank.steps->memory_calls.mean = 54;
    rank.host_load = {.observed_s = 5, .waits_for_cpu = 0.4};
  }
  ASSERT_EQ(Of("memory-calls", r).size(), 1u);
  EXPECT_THAT(Of("memory-calls", r)[0].evidence, StartsWith("54.0 calls per step and rank"));
  EXPECT_TRUE(Of("cpu-starved", r).empty());
}

TEST(HostPauseFinding, KnowsACauseOnlyByCopies) {
  Report r = WithPart(&StepsReport::pause_ns, 3e6);
  ASSERT_EQ(Of("host-pause", r).size(), 1u);
  EXPECT_THAT(Of("host-pause", r)[0].evidence, HasSubstr("cause is unknown"));
  for (RankReport& rank : r.ranks) rank.steps->pause_after_copy_ns.mean = 2e6;
  EXPECT_THAT(Of("host-pause", r)[0].evidence, StartsWith("2.00 ms of it follow copies to the host"));
}

HostPlaceReport PlaceOf(const std::string& function, const std::string& file, double share = 0.93) {
  return {.python = {{.function = function, .file = file, .line = 162},
                     {.function = "train", .file = "train.py", .line = 14}},
          .ns_per_step = 1.2e6 * share,
          .share = share,
          .samples = static_cast<uint64_t>(400 * share),
          .of_samples = 400};
}

void Sample(Report& r, model::IdleCause cause, std::vector<HostPlaceReport> places) {
  r.host_time.push_back({.cause = cause, .ns_per_step = 1.2e6, .samples = 400, .places = std::move(places)});
}

TEST(HostPauseFinding, SaysWhereTheHostIsAndHowSureThatIs) {
  Report r = WithPart(&StepsReport::pause_ns, 1.2e6);
  HostPlaceReport place = PlaceOf("empty_cache", "/usr/lib/python3/dist-packages/torch/cuda/memory.py");
  place.call = "cuMemFree";
  place.task = model::HostTask::kEmptiesCache;
  Sample(r, model::IdleCause::kPause, {place});
  Finding f = Of("host-pause", r)[0];
  EXPECT_EQ(
      f.statement,
      "The GPUs wait 1.20 ms per step (12.0 % of the step) while the host launches nothing: it empties "
      "PyTorch's cache: cuMemFree, called from empty_cache (torch/cuda/memory.py:162), called from train "
      "(train.py:14) (93 % of 400 samples).");
  EXPECT_THAT(f.advice, StartsWith("Remove torch.cuda.empty_cache()"));
  r.host_time.clear();
  place = PlaceOf("collect_metrics", "train.py", 7.0 / 9);
  place.samples = 7;
  place.of_samples = 9;
  Sample(r, model::IdleCause::kPause, {place, PlaceOf("other", "train.py", 2.0 / 9)});
  f = Of("host-pause", r)[0];
  EXPECT_THAT(f.statement, HasSubstr("it is in collect_metrics (train.py:162) (in 7 of 9 samples)"));
  EXPECT_THAT(f.evidence, HasSubstr("Besides: 22 % other (train.py:162)"));
  EXPECT_THAT(f.advice, StartsWith("Move it out of the loop"));
}

TEST(HostPauseFinding, SaysWhoseLineItIsWhereTheHostWaitsForAnotherThread) {
  Report r = WithPart(&StepsReport::pause_ns, 1.2e6);
  HostPlaceReport place = PlaceOf("index", "indexer.py");
  place.python.resize(1);
  place.lock_held = true;
  Sample(r, model::IdleCause::kPause, {place});
  EXPECT_THAT(Of("host-pause", r)[0].statement,
              HasSubstr("it is waiting for Python's lock (GIL), which another thread holds in index "
                        "(indexer.py:162) (93 % of 400 samples)"));
  EXPECT_THAT(Of("host-pause", r)[0].advice, HasSubstr("into a process of its own"));
  place.lock_held = false;
  place.system_call = "futex";
  r.host_time[0].places = {place};
  EXPECT_THAT(Of("host-pause", r)[0].statement,
              HasSubstr("it waits for another thread: index (indexer.py:162)"));
  place.task = model::HostTask::kLoads;
  r.host_time[0].places = {place};
  EXPECT_THAT(Of("host-pause", r)[0].statement, HasSubstr("it loads data: index (indexer.py:162)"))
      << "what for says more";
}

TEST(HostPauseFinding, NamesNoCauseThatExplainsLessThanHalfOrThatChanceMayHaveGiven) {
  Report r = WithPart(&StepsReport::pause_ns, 1.2e6);
  Sample(r, model::IdleCause::kPause, {PlaceOf("a", "train.py", 0.4), PlaceOf("b", "train.py", 0.3)});
  EXPECT_THAT(Of("host-pause", r)[0].statement, StartsWith("The host does something else"));
  EXPECT_THAT(Of("host-pause", r)[0].evidence,
              HasSubstr("in several places (400 samples): 40 % a (train.py:162)"));
  r.host_time.clear();
  HostPlaceReport place = PlaceOf("a", "train.py", 1);
  place.samples = place.of_samples = 2;
  Sample(r, model::IdleCause::kPause, {place});
  EXPECT_THAT(Of("host-pause", r)[0].statement, StartsWith("The host does something else"));
}

TEST(MemoryCallsFinding, NamesTheLineThatAllocates) {
  Report r = WithPart(&StepsReport::memory_ns, 1.2e6);
  HostPlaceReport place = PlaceOf("empty_cache", "/usr/lib/python3/dist-packages/torch/cuda/memory.py");
  place.memory_call = true;
  place.samples = 0;
  Sample(r, model::IdleCause::kMemory, {place});
  EXPECT_THAT(
      Of("memory-calls", r)[0].statement,
      EndsWith("1.20 ms per step (12.0 % of the step): it is in a call that allocates or releases memory, "
               "called from empty_cache (torch/cuda/memory.py:162), called from train (train.py:14) "
               "(93 % of it, measured)."));
}

TEST(InputBoundFinding, NamesTheLoadersLine) {
  Report r = WithPart(&StepsReport::input_ns, 1.2e6);
  HostPlaceReport place = PlaceOf("Tokens.__getitem__", "data.py");
  place.task = model::HostTask::kLoads;
  Sample(r, model::IdleCause::kInput, {place});
  EXPECT_THAT(Of("input-bound", r)[0].statement,
              EndsWith(": it loads data: Tokens.__getitem__ (data.py:162) (93 % of 400 samples)."));
}

TEST(LaunchBoundFinding, NamesWhereTheHostLaunches) {
  Report r = WithPart(&StepsReport::host_bound_ns, 1.2e6);
  r.compute.calls_per_step = 100;
  r.compute.kernels = 1000;
  Sample(r, model::IdleCause::kHostBound,
         {PlaceOf("_single_tensor_adamw", "/usr/lib/python3/dist-packages/torch/optim/adamw.py", 0.6)});
  EXPECT_THAT(Of("launch-bound", r)[0].evidence,
              EndsWith("Where the host is meanwhile (400 samples): 60 % _single_tensor_adamw "
                       "(torch/optim/adamw.py:162), called "
                       "from train (train.py:14)."));
}

TEST(CpuStarvedFinding, IsSaidOfSamplesThatHadNoCpu) {
  Report r = WithPart(&StepsReport::pause_ns, 1.2e6);
  HostPlaceReport none{
      .no_cpu = true, .ns_per_step = 0.9e6, .share = 0.75, .samples = 300, .of_samples = 400};
  Sample(r, model::IdleCause::kPause, {none});
  ASSERT_EQ(Of("cpu-starved", r).size(), 1u);
  EXPECT_THAT(Of("cpu-starved", r)[0].evidence, HasSubstr("could run, and had no CPU, for 75.0 %"));
  EXPECT_TRUE(Of("host-pause", r).empty());
  r.host_time[0].places[0].ns_per_step = 0.5e6;
  EXPECT_TRUE(Of("cpu-starved", r).empty());
}

TEST(LongStepsFinding, SaysWhatTheHostDidInThem) {
  Report r = Steady();
  r.long_steps = LongStepsReport{.compared_steps = 21,
                                 .usual_ns = 32e6,
                                 .cost_ns = 56e6 / 21,
                                 .steps = {{8, 60e6, 6, 28e6}, {15, 60e6, 6, 27e6}},
                                 .content = {.pause_ns = 25e6},
                                 .pattern = {}};
  HostPlaceReport place = PlaceOf("_save", "/usr/lib/python3/dist-packages/torch/serialization.py", 0.9);
  place.task = model::HostTask::kSaves;
  place.ns_per_step = 20e6;
  r.long_steps->host_places = {place};
  EXPECT_THAT(Of("long-steps", r)[0].evidence,
              HasSubstr("and the host writes a checkpoint: _save (torch/serialization.py:162)"));
  EXPECT_THAT(Of("long-steps", r)[0].evidence, Not(HasSubstr("nothing recorded")));
  EXPECT_THAT(Of("long-steps", r)[0].advice, HasSubstr("async_save"));
  r.long_steps->host_places[0].ns_per_step = 5e6;  // of 25 ms
  EXPECT_THAT(Of("long-steps", r)[0].evidence, HasSubstr("nothing recorded says why"));
}

TEST(LongStepsFinding, SaysWhatALateRanksHostDidBeforeThem) {
  Report r = Steady();
  r.long_steps = LongStepsReport{.compared_steps = 21,
                                 .usual_ns = 32e6,
                                 .cost_ns = 56e6 / 21,
                                 .steps = {{8, 60e6, 6, 28e6}, {15, 60e6, 6, 27e6}},
                                 .content = {},
                                 .pattern = {}};
  HostPlaceReport place = PlaceOf("evaluate", "train.py", 0.9);
  place.python.resize(1);
  place.ns_per_step = 20e6;
  r.long_steps->host_places = {place};
  EXPECT_THAT(
      Of("long-steps", r)[0].evidence,
      StartsWith("Before or in them, rank 6's host is in evaluate (train.py:162) (90 % of 400 samples). "));
  r.long_steps->host_places[0].ns_per_step = 5e6;
  EXPECT_THAT(Of("long-steps", r)[0].evidence, Not(HasSubstr("evaluate")));
}

TEST(HostPauseFinding, KnowsGraphsThatAreMadeAnew) {
  Report r = WithPart(&StepsReport::pause_ns, 4e6);
  r.compute.graphs = 400;
  r.compute.graph_launches = 410;
  EXPECT_THAT(Of("host-pause", r)[0].statement, StartsWith("The host makes CUDA graphs anew"));
  EXPECT_THAT(Of("host-pause", r)[0].evidence, StartsWith("400 CUDA graphs were launched 410 times in all"));
  EXPECT_THAT(Of("host-pause", r)[0].advice, HasSubstr("pad batches to a few lengths"));
  r.compute.graph_launches = 20'000;
  EXPECT_THAT(Of("host-pause", r)[0].statement, StartsWith("The host does something else"))
      << "they are kept";
  r.compute.graphs = r.compute.graph_launches = 8;
  EXPECT_THAT(Of("host-pause", r)[0].statement, StartsWith("The host does something else"))
      << "one on each rank, for what is done once";
}

TEST(WarmupDominatedFinding, IsSilentWhereTheRunStandsStill) {
  Report r = Steady();
  r.conditions.duration_ns = 60'000'000'000;
  ASSERT_EQ(Of("warmup-dominated", r).size(), 1u);
  r.hangs.emplace_back();
  EXPECT_TRUE(Of("warmup-dominated", r).empty());
}

TEST(SyncInLoopFinding, SaysWhereTheHostWorksAfterTheCall) {
  Report r = WithPart(&StepsReport::sync_ns, 4e6);
  for (RankReport& rank : r.ranks) rank.steps->blocked_calls.mean = 40;
  ASSERT_EQ(Of("sync-in-loop", r).size(), 1u);
  EXPECT_THAT(Of("sync-in-loop", r)[0].advice, StartsWith("Look for .item()"))
      << "100 us each are what launching takes";
  for (RankReport& rank : r.ranks) rank.steps->blocked_calls.mean = 1;
  EXPECT_THAT(Of("sync-in-loop", r)[0].evidence, HasSubstr("After each it launches nothing for 4.00 ms"));
  EXPECT_THAT(Of("sync-in-loop", r)[0].advice, HasSubstr("gpuprobe stacks"));
}

TEST(SyncInLoopFinding, CountsRanksThatHaveStepsOnly) {
  Report r = WithPart(&StepsReport::sync_ns, 2e6);
  for (RankReport& rank : r.ranks) rank.steps->blocked_calls.mean = 3;
  // Of most ranks no record came.
  for (size_t i = 2; i < r.ranks.size(); ++i) r.ranks[i].steps.reset();
  EXPECT_THAT(Of("sync-in-loop", r)[0].evidence, StartsWith("3.0 synchronising calls"));
  EXPECT_EQ(Of("sync-in-loop", r)[0].cost_ns_per_step, 2e6);
}

TEST(LongStepsFinding, IsNotSaidOfAHangThatWentBy) {
  Report r = Steady();
  r.long_steps = LongStepsReport{.compared_steps = 120,
                                 .usual_ns = 10e6,
                                 .cost_ns = 75e6,
                                 .steps = {{99, 9.03e9, 0, 9.02e9}},
                                 .content = {},
                                 .pattern = {}};
  EXPECT_EQ(Of("long-steps", r).size(), 1u);
  r.past_hangs.push_back({.hang = {}, .since_ns = 1'000'000'000, .until_ns = 10'000'000'000});
  EXPECT_TRUE(Of("long-steps", r).empty());
  r.past_hangs[0].until_ns = 2'000'000'000;
  EXPECT_EQ(Of("long-steps", r).size(), 1u) << "the hang was another one";
}

TEST(LongStepsFinding, IsNotSaidOfHostsThatHadNoCpuForLonger) {
  Report r = Steady();
  r.long_steps = LongStepsReport{.compared_steps = 100,
                                 .usual_ns = 10e6,
                                 .cost_ns = 1e6,
                                 .steps = {{20, 60e6, 1, 40e6}, {57, 60e6, 1, 40e6}},
                                 .content = {.input_ns = 40e6},
                                 .pattern = {}};
  for (RankReport& rank : r.ranks) rank.host_load = {.observed_s = 5, .waits_for_cpu = 0.12};
  EXPECT_TRUE(Of("long-steps", r).empty()) << "1.2 ms per step, and the steps cost 1 ms";
  r.long_steps->pattern = StepPattern{.every = 37, .length = 1};
  EXPECT_EQ(Of("long-steps", r).size(), 1u) << "a busy machine has no period";
  r.long_steps->pattern.reset();
  r.long_steps->content = {.compute_ns = 40e6};
  EXPECT_EQ(Of("long-steps", r).size(), 1u) << "kernels need no CPU";
  r.long_steps->content = {.input_ns = 40e6};
  r.long_steps->steps[0].time_ns = 160e6;
  EXPECT_EQ(Of("long-steps", r).size(), 1u) << "they cost more than that";
  r.long_steps->steps[0].time_ns = 60e6;
  for (RankReport& rank : r.ranks) rank.host_load.waits_for_cpu = 0.049;
  EXPECT_EQ(Of("long-steps", r).size(), 1u);
}

TEST(StepsUnknownFinding, NamesWhatMayMarkSteps) {
  Report r = Steady();
  r.compute.kernels = 6'200;
  EXPECT_TRUE(Of("steps-unknown", r).empty());
  r.steps.reset();
  ASSERT_EQ(Of("steps-unknown", r).size(), 1u);
  EXPECT_THAT(Of("steps-unknown", r)[0].evidence, HasSubstr("6,200 kernels"));
  EXPECT_THAT(Of("steps-unknown", r)[0].advice, HasSubstr("NVTX range around its body"));
  CollectiveReport& call = r.collectives.emplace_back();
  call.op = "AllReduce";
  call.calls = 12;
  EXPECT_THAT(Of("steps-unknown", r)[0].advice, HasSubstr("--step-marker 'collective:AllReduce'"));
  PhaseReport& phase = r.phases.emplace_back();
  phase.name = "round";
  phase.host_ns.count = 4;
  EXPECT_THAT(Of("steps-unknown", r)[0].advice, HasSubstr("collective:AllReduce")) << "too few";
  phase.host_ns.count = 40;
  EXPECT_THAT(Of("steps-unknown", r)[0].advice, HasSubstr("--step-marker 'nvtx:round'"));
  r.compute.kernels = 20;
  EXPECT_TRUE(Of("steps-unknown", r).empty()) << "no job";
  r.compute.kernels = 6'200;
  r.conditions.step_marker = "nvtx:nothing";
  EXPECT_TRUE(Of("steps-unknown", r).empty()) << "another finding says that it marks nothing";
}

// Two ranks whose loaders are slow alike, each a little later than the other now and then.
TEST(InputBoundFinding, IsTheJobsIfEveryRankIsALittleLateItself) {
  Report r = WithPart(&StepsReport::input_ns, 6e6);
  r.ranks.resize(2);
  for (const RankReport& rank : r.ranks) {
    Straggler s;
    s.rank = rank.rank;
    s.cause = Straggler::Cause::kLateInput;
    s.cause_ns_per_step = 1e6;
    s.lost_ns_per_step = 0.5e6;
    r.stragglers.push_back(s);
  }
  auto found = Of("input-bound", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].statement,
              HasSubstr("wait 5.00 ms per step (50.0 % of the step) before their input comes."));
  // What their own findings explain is not the job's.
  for (Straggler& s : r.stragglers) s.cause_ns_per_step = 5.5e6;
  EXPECT_TRUE(Of("input-bound", r).empty());
}

}  // namespace
}  // namespace gpuprobe::analysis
