// What findings conclude from reports that are made for them, and that the advice follows from the evidence:
// each with a report that has the trouble, and one that nearly has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/report.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/clock/device_clock.h"
#include "collector/model/job/late_steps.h"
#include "tests/collector/testing/units.h"

namespace gpuprobe::analysis {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using gpuprobe::testing::kMiB;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Eight ranks, 50 steps of 10 ms, 9 ms of compute.
Report Steady() {
  Report r;
  r.steps.emplace();
  r.steps->count = 52;
  r.steps->warmup_count = 2;
  const auto fill = [](model::Summary& s, double mean) {
    s.count = 400;
    s.mean = mean;
    s.total = static_cast<uint64_t>(mean) * 400;
  };
  fill(r.steps->time_ns, 10e6);
  fill(r.steps->compute_ns, 9e6);
  for (int i = 0; i < 8; ++i) {
    RankReport& rank = r.ranks.emplace_back();
    rank.rank = i;
    rank.label = std::to_string(i);
    rank.step_means.steps = 50;
    rank.step_means.total_ns = 10e6;
    rank.step_means.compute_ns = 9e6;
  }
  r.conditions.hosts = {"n1"};
  r.conditions.duration_ns = 600'000'000;
  r.communication.step_ns = 10e6;
  r.communication.compute_ns = 9e6;
  return r;
}

std::vector<Finding> Of(void (*rule)(const Report&, std::vector<Finding>&), const Report& report) {
  std::vector<Finding> out;
  rule(report, out);
  return out;
}

Straggler SlowCopies() {
  Straggler s;
  s.rank = 3;
  s.host = "n1";
  s.device = 3;
  s.cause = Straggler::Cause::kSlowCopies;
  s.cause_ns_per_step = 1.2e6;
  s.lost_ns_per_step = 1e6;
  s.throughput_loss = 0.1;
  s.caused.per_step_ns = 1e6;
  return s;
}

TEST(StragglerFinding, SlowCopiesPointToTheBusOfThatDevice) {
  Report r = Steady();
  r.stragglers = {SlowCopies()};
  const auto found = Of(StragglerSlowCopies, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].statement, HasSubstr("The other 7 ranks wait for rank 3, 1.00 ms per step each"));
  EXPECT_EQ(found[0].evidence, "Its copies take 1.20 ms longer per step than the others'.");
  EXPECT_EQ(found[0].advice, "Compare the PCIe link of GPU 3 on n1 with those of the other ranks.");
  EXPECT_DOUBLE_EQ(*found[0].cost_ns_per_step, 1e6);
  r.stragglers[0].cause = Straggler::Cause::kLateInput;
  EXPECT_TRUE(Of(StragglerSlowCopies, r).empty());
}

TEST(StragglerFinding, OfALateRankThatCostsNothingNothingIsSaid) {
  Report r = Steady();
  r.stragglers = {SlowCopies()};
  r.stragglers[0].lost_ns_per_step = 0;
  for (const auto cause :
       {Straggler::Cause::kSlowCopies, Straggler::Cause::kLateLaunch, Straggler::Cause::kLateInput}) {
    r.stragglers[0].cause = cause;
    EXPECT_TRUE(Of(StragglerSlowCopies, r).empty());
    EXPECT_TRUE(Of(StragglerLateLaunch, r).empty());
    EXPECT_TRUE(Of(StragglerLateInput, r).empty());
  }
  // Slower kernels are worth knowing.
  r.stragglers[0].cause = Straggler::Cause::kSlowKernels;
  r.stragglers[0].slowdown = 1.3;
  EXPECT_TRUE(Of(StragglerSlowGpu, r).empty());
  r.stragglers[0].extra_ns = 5e6;
  const auto found = Of(StragglerSlowGpu, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].statement, HasSubstr("its kernels run 1.30x slower"));
}

// Ranks wait 2 ms per step for each other, and all of it is exposed.
Report Waiting(const std::vector<double>& caused_ms) {
  Report r = Steady();
  r.communication.waited_ns = 2e6;
  r.communication.exposed_ns = 2.1e6;
  r.communication.exposed_transfer_ns = 0.1e6;
  for (size_t i = 0; i < caused_ms.size(); ++i) {
    r.ranks[i].caused.per_step_ns = caused_ms[i] * 1e6;
    r.ranks[i].caused.steps = 3;
    r.ranks[i].caused.steps_blamed = caused_ms[i] > 0.5 ? 3 : 0;
  }
  return r;
}

TEST(ImbalanceFinding, SaysThatNobodyIsAtFaultOnlyWhereBlameIsSpread) {
  const auto spread = Of(Imbalance, Waiting({0.3, 0.1, 0.2, 0.5, 0.2, 0.3, 0.2, 0.2}));
  ASSERT_EQ(spread.size(), 1u);
  EXPECT_THAT(spread[0].statement, HasSubstr("no single rank is at fault"));
  EXPECT_THAT(spread[0].evidence, HasSubstr("rank 3 causes the largest share of the waiting, 25.0 %"));

  Report r = Waiting({0.01, 0, 0, 2, 0, 0, 0, 0});
  r.ranks[3].step_means.compute_ns = 11e6;
  const auto one = Of(Imbalance, r);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_THAT(one[0].statement, HasSubstr("% of it for rank 3);"));
  EXPECT_THAT(one[0].statement, Not(HasSubstr("at fault")));
  EXPECT_THAT(one[0].evidence, HasSubstr("for rank 3 in 3 of 3 steps"));
  EXPECT_THAT(one[0].evidence, HasSubstr("It computes 2.00 ms longer per step"));
  EXPECT_THAT(one[0].advice, HasSubstr("Record more steps"));

  // With two ranks, one always causes at least half.
  Report two = Waiting({0.8, 1.2});
  two.ranks.resize(2);
  EXPECT_THAT(Of(Imbalance, two)[0].statement, HasSubstr("no single rank"));

  const auto unknown = Of(Imbalance, Waiting({0, 0, 0}));
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_THAT(unknown[0].statement, HasSubstr("the rank at fault is unknown"));
}

TEST(LongStepsFinding, NamesTheStepsAndWhoWasLate) {
  Report r = Steady();
  EXPECT_TRUE(Of(LongSteps, r).empty());
  r.long_steps = LongStepsReport{.compared_steps = 21,
                                 .usual_ns = 32e6,
                                 .cost_ns = 56e6 / 21,
                                 .steps = {{8, 60e6, 6, 28e6}, {15, 60e6, 6, 27e6}}};
  auto found = Of(LongSteps, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement,
            "2 of 21 steps take much longer than the typical 32.0 ms: 8 (60.0 ms) and 15 (60.0 ms). They "
            "lengthen the average step by 2.67 ms (8.3 %).");
  EXPECT_EQ(found[0].evidence,
            "The other ranks waited for rank 6 in both, 27.5 ms on average. The same rank would be last by "
            "chance in one of 8 such runs.");
  r.long_steps->steps[1].last_rank = 2;
  EXPECT_THAT(Of(LongSteps, r)[0].evidence, HasSubstr("Latest: rank 6 in step 8, rank 2 in step 15."));
  for (auto& step : r.long_steps->steps) step.last_rank.reset();
  EXPECT_THAT(Of(LongSteps, r)[0].evidence, HasSubstr("No rank was later"));
  // What a straggler's finding says is not said twice.
  for (auto& step : r.long_steps->steps) step.last_rank = 3;
  r.stragglers = {SlowCopies()};
  EXPECT_TRUE(Of(LongSteps, r).empty());
}

TEST(LowMfuFinding, NamesWhereTheStepGoesOnlyBelowThirtyPercent) {
  Report r = Steady();
  r.utilisation.asked = true;
  r.utilisation.type = "bf16";
  EXPECT_TRUE(Of(LowMfu, r).empty()) << "it is not known";
  r.utilisation.mfu = 0.3;
  EXPECT_TRUE(Of(LowMfu, r).empty());
  r.utilisation.mfu = 0.23;
  r.compute.classes = {{.name = "gemm", .calls = 1, .total_ns = 1, .share = 0.55}};
  const auto found = Of(LowMfu, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement, "The step uses 23.0 % of the GPUs' bf16 peak (MFU).");
  EXPECT_THAT(found[0].evidence, HasSubstr("compute 90.0 %"));
  EXPECT_THAT(found[0].evidence, HasSubstr("attention take 55.0 %"));
}

TEST(MixedHardwareFinding, SaysWhatDiffers) {
  Report r = Steady();
  EXPECT_TRUE(Of(MixedHardware, r).empty());
  r.conditions.differing = {"NCCL 2.27.3 on 1 rank, 2.28.9 on 7 ranks"};
  const auto found = Of(MixedHardware, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].evidence, "NCCL 2.27.3 on 1 rank, 2.28.9 on 7 ranks.");
}

TEST(DetailDroppedFinding, SaysFromWhenOnSingleRecordsExist) {
  Report r = Steady();
  EXPECT_TRUE(Of(DetailDropped, r).empty());
  r.conditions.start_ns = 1'000'000'000;
  r.trust.detail_since_ns = 13'500'000'000;
  const auto found = Of(DetailDropped, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement, "Individual records are kept only from 12.5 s into the run.");
  EXPECT_THAT(found[0].advice, HasSubstr("--keep"));
}

// A report in which 3 ms of transfers are exposed per step.
Report Bound(std::vector<ExposedCalls> calls) {
  Report r = Steady();
  r.communication.compute_ns = 6e6;
  r.communication.transfer_ns = 4e6;
  r.communication.exposed_transfer_ns = 3e6;
  r.communication.exposed = std::move(calls);
  return r;
}

ExposedCalls Calls(std::string op, bool in_forward, double exposed_ms) {
  return {.op = std::move(op),
          .comm_ranks = 4,
          .in_forward = in_forward,
          .calls_per_step = 16,
          .time_ns_per_step = exposed_ms * 1.1e6,
          .exposed_ns_per_step = exposed_ms * 1e6};
}

TEST(CommunicationBoundFinding, AdviceForGradientsIsAboutBackwardAndBuckets) {
  const Report r = Bound({Calls("AllReduce", false, 3)});
  const auto bound = Of(CommunicationBound, r);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].advice, HasSubstr("Start reductions while backward still runs"));
  const auto overlap = Of(PoorOverlap, r);
  ASSERT_EQ(overlap.size(), 1u);
  EXPECT_THAT(overlap[0].advice, HasSubstr("smaller first bucket"));
}

TEST(CommunicationBoundFinding, AdviceForCallsInsideTheLayersIsAboutTensorParallelism) {
  const Report r = Bound({Calls("AllReduce", true, 2.9), Calls("AllReduce", false, 0.1)});
  const auto bound = Of(CommunicationBound, r);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].evidence,
              HasSubstr("16 AllReduce over 4 ranks inside layers (also in forward), 2.90 ms exposed"));
  EXPECT_THAT(bound[0].advice, HasSubstr("asynchronous tensor parallelism"));
  EXPECT_THAT(bound[0].advice, Not(HasSubstr("DDP")));
  EXPECT_TRUE(Of(PoorOverlap, r).empty()) << "the same calls, and the same remedy";
}

TEST(CommunicationBoundFinding, AdviceForGatheredWeightsIsToPrefetchThem) {
  const auto bound =
      Of(CommunicationBound, Bound({Calls("AllGather", true, 2), Calls("ReduceScatter", false, 1)}));
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].advice, HasSubstr("Prefetch the next layer's weights"));
}

TEST(CommunicationBoundFinding, WhatIsScatteredInForwardIsNoGradient) {
  const auto bound =
      Of(CommunicationBound, Bound({Calls("AllGather", true, 2), Calls("ReduceScatter", true, 1)}));
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].advice, HasSubstr("Asynchronous tensor parallelism"));
}

TEST(CommunicationBoundFinding, OverHostsItAsksForTheNetworksPeak) {
  Report r = Bound({Calls("AllReduce", false, 3)});
  EXPECT_THAT(Of(CommunicationBound, r)[0].advice, Not(HasSubstr("--link-peak")));
  r.conditions.hosts = {"n1", "n2"};
  CollectiveReport over;
  over.op = "AllReduce";
  over.comm = "1";
  over.comm_ranks = 16;
  over.size_bytes = 25 * kMiB;
  over.transfer_busbw = 9.5;
  over.hosts = 2;
  CollectiveReport within = over;
  within.comm = "2";
  within.comm_ranks = 8;
  within.transfer_busbw = 265;
  within.hosts = 1;
  r.collectives = {over, within};
  const Finding f = Of(CommunicationBound, r)[0];
  EXPECT_THAT(f.evidence,
              HasSubstr("at most 9.50 GB/s bus bandwidth between the 2 hosts, 265 GB/s within one"));
  EXPECT_THAT(f.advice, HasSubstr("--link-peak"));
  r.communication.link_peak = 10;
  r.communication.link_peak_source = "--link-peak";
  EXPECT_THAT(Of(CommunicationBound, r)[0].advice, Not(HasSubstr("--link-peak")));
  // Then what crosses the hosts is slow, which is another finding, however fast they are within.
  r.communication.link_peak = 400;
  EXPECT_TRUE(Of(CommunicationBound, r).empty());
}

// Half of the communicator's ranks record elsewhere.
TEST(CommunicationUnheardFinding, StandsForEveryConclusionFromTransfers) {
  Report r = Bound({Calls("AllReduce", false, 3)});
  CollectiveReport c;
  c.op = "AllReduce";
  c.comm = "9c1e000000000000";
  c.comm_ranks = 16;
  c.heard_ranks = 8;
  r.collectives = {c};
  EXPECT_TRUE(Of(CommunicationUnheard, r).empty()) << "hardly any time is spent with them";
  EXPECT_FALSE(Of(CommunicationBound, r).empty());
  r.communication.unheard_share = 0.9;
  const auto found = Of(CommunicationUnheard, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement,
            "30.0 % of the 10.0 ms step is exposed communication (3.00 ms). The share spent waiting for "
            "ranks that are not recorded here is unknown.");
  EXPECT_THAT(found[0].evidence, HasSubstr("Recorded ranks: 8 of 16 in communicator 9c1e0000."));
  EXPECT_DOUBLE_EQ(*found[0].cost_ns_per_step, 3e6);
  EXPECT_TRUE(Of(CommunicationBound, r).empty());
  EXPECT_TRUE(Of(PoorOverlap, r).empty());
  r.communication.exposed_transfer_ns = 0.9e6;
  EXPECT_TRUE(Of(CommunicationUnheard, r).empty()) << "not worth it";
}

TEST(RanksMissingFinding, NamesRunsOfRanks) {
  Report r = Steady();
  r.conditions.ranks_expected = 16;
  r.conditions.ranks_heard = 8;
  ASSERT_EQ(Of(RanksMissing, r).size(), 1u);
  EXPECT_EQ(Of(RanksMissing, r)[0].evidence, "Missing: ranks 8-15.");
  r.conditions.ranks_expected = 9;
  EXPECT_EQ(Of(RanksMissing, r)[0].evidence, "Missing: rank 8.");
}

// Its GPUs run out of work for 4 ms of each step, with 100 kernels in it.
Report LaunchesLate() {
  Report r = Steady();
  for (RankReport& rank : r.ranks) {
    rank.steps.emplace();
    rank.steps->host_bound_ns.mean = 4e6;
  }
  r.compute.kernels = 100 * r.steps->count * r.ranks.size();
  return r;
}

TEST(LaunchBoundFinding, NeedsFiveStepsOfARankAndNotOfAll) {
  Report r = LaunchesLate();
  EXPECT_EQ(Of(LaunchBound, r).size(), 1u);
  r.steps->count = 2;
  r.steps->warmup_count = 0;
  r.steps->time_ns.count = 16;
  EXPECT_TRUE(Of(LaunchBound, r).empty());
}

TEST(LaunchBoundFinding, AdvisesNothingThatTheProgramDoesAlready) {
  Report r = LaunchesLate();
  const auto said = [&] { return Of(LaunchBound, r)[0]; };
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
  r.compute.kernels = r.steps->count * r.ranks.size();
  EXPECT_EQ(Of(LaunchBound, r).size(), 1u) << "one kernel a step";
  r.compute.kernels -= 1;
  EXPECT_TRUE(Of(LaunchBound, r).empty());
  r.compute.kernels = 0;
  EXPECT_TRUE(Of(LaunchBound, r).empty());
}

TEST(OptionsMistakenFinding, SaysWhatCannotBe) {
  Report r = Steady();
  r.utilisation.mfu = 0.99;
  EXPECT_TRUE(Of(OptionsMistaken, r).empty());
  r.utilisation.mfu = 5.106;
  EXPECT_EQ(Of(OptionsMistaken, r)[0].statement, "MFU of 510.6 % is impossible: no GPU exceeds its peak.");
  r.utilisation.mfu.reset();
  CollectiveReport& c = r.collectives.emplace_back();
  c.op = "AllReduce";
  c.comm_ranks = 8;
  c.size_bytes = 25 * kMiB;
  c.peak_share = 2.65;
  r.communication.link_peak = 100;
  r.communication.link_peak_source = "NVLink of H100";
  EXPECT_TRUE(Of(OptionsMistaken, r).empty()) << "nobody told it";
  r.communication.link_peak_source = "--link-peak";
  EXPECT_EQ(Of(OptionsMistaken, r)[0].statement,
            "Transfers reach 265.0 % of --link-peak, so the peak is above 100 GB/s.");
  EXPECT_THAT(Of(OptionsMistaken, r)[0].evidence, HasSubstr("265 GB/s bus bandwidth"));
  c.peak_share = 1.05;
  r.conditions.step_marker = "nvtx:nothing";
  EXPECT_TRUE(Of(OptionsMistaken, r).empty());
  r.steps.reset();
  EXPECT_THAT(Of(OptionsMistaken, r)[0].statement, HasSubstr("--step-marker nvtx:nothing marks no steps"));
}

TEST(PipelineBubbleFinding, DoesNotHideWhatIsExposedInsideTheStages) {
  Report r = Bound({Calls("AllReduce", true, 2.5), Calls("Send", true, 2)});
  r.communication.exposed_transfer_ns = 5e6;
  r.communication.pipeline = Pipeline{.stages = 2,
                                      .microbatches = 4,
                                      .bubble = 0.21,
                                      .least_bubble = 0.2,
                                      .collective_ns = 2.6e6,
                                      .exposed_collective_ns = 2.5e6};
  const auto bubble = Of(PipelineBubble, r);
  ASSERT_EQ(bubble.size(), 1u);
  EXPECT_EQ(bubble[0].statement, "Pipeline bubble: stages are idle for 21.0 % of the 10.0 ms step.");
  EXPECT_THAT(bubble[0].advice, HasSubstr("more microbatches"));
  const auto bound = Of(CommunicationBound, r);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].statement, HasSubstr("25.0 % of the 10.0 ms step"));
  r.communication.pipeline->bubble = 0.3;
  EXPECT_THAT(Of(PipelineBubble, r)[0].advice, HasSubstr("Balance the stages"));
  r.communication.pipeline->bubble = 0.09;
  EXPECT_TRUE(Of(PipelineBubble, r).empty());
}

TEST(WarmupDominatedFinding, IsSilentWhereTheRunStandsStill) {
  Report r = Steady();
  r.conditions.duration_ns = 60'000'000'000;
  ASSERT_EQ(Of(WarmupDominated, r).size(), 1u);
  r.hangs.emplace_back();
  EXPECT_TRUE(Of(WarmupDominated, r).empty());
}

TEST(RankCutOffFinding, ManyRanksTakeOneLine) {
  Report r = Steady();
  r.conditions.start_ns = 1;
  for (RankReport& rank : r.ranks) {
    rank.cut_off = rank.rank != 6;
    if (rank.cut_off)
      r.trust.cut_off.push_back(
          {.who = "rank " + rank.label + " (pid 4711)", .last_data_ns = 91'400'000'001});
  }
  const auto found = Of(RankCutOff, r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].evidence, "Ranks 0-5, 7, last data after 91.4 s.");
  r.trust.cut_off.resize(1);
  EXPECT_EQ(Of(RankCutOff, r)[0].evidence, "Rank 0 (pid 4711), last data after 91.4 s.");
}

TEST(MemoryFindings, SayWhenAllRanksAreAlike) {
  Report r = Steady();
  for (RankReport& rank : r.ranks) {
    DeviceMemoryReport& d = rank.device_memory.emplace_back();
    d.capacity_bytes = 80 * kGiB;
    d.high_water_bytes = 77 * kGiB;
    d.trend = MemoryTrend{
        .held_bytes = 20 * kGiB, .growth_bytes_per_step = 64.0 * kMiB + *rank.rank, .steps_until_full = 900};
  }
  EXPECT_THAT(Of(MemoryLeak, r)[0].statement,
              HasSubstr("Each of the 8 ranks holds 64.0 MiB more memory after every step"));
  EXPECT_THAT(Of(MemoryPressure, r)[0].statement,
              HasSubstr("Each of the 8 ranks came within 3.7 % of its GPU's capacity"));
  for (size_t i = 3; i < 8; ++i) r.ranks[i].device_memory.clear();
  EXPECT_THAT(Of(MemoryLeak, r)[0].statement, HasSubstr("Rank 2 and 2 others hold 64.0 MiB"));
  EXPECT_THAT(Of(MemoryPressure, r)[0].statement,
              HasSubstr("and 2 others came within 3.7 % of their GPUs' capacity"));
  for (size_t i = 1; i < 3; ++i) r.ranks[i].device_memory.clear();
  EXPECT_THAT(Of(MemoryLeak, r)[0].statement,
              HasSubstr("Rank 0 holds 64.0 MiB more memory after every step"));
  EXPECT_THAT(Of(MemoryPressure, r)[0].statement,
              HasSubstr("Rank 0 came within 3.7 % of its GPU's capacity: 77.0 GiB of 80.0 GiB."));
}

TEST(RecordsLostFinding, CountsAsTheHeadlineDoes) {
  Report r = Steady();
  r.trust.lost_total = 37'870;
  r.trust.lost = {{"send_queue_full", 37'870}};
  const Finding f = Of(RecordsLost, r)[0];
  EXPECT_THAT(f.statement, HasSubstr("37,870 records were lost"));
  EXPECT_THAT(f.evidence, HasSubstr("send_queue_full 37,870"));
}

// "5 % or 1.5x" holds 5 and 1.5.
std::vector<double> NumbersIn(const std::string& text) {
  std::vector<double> numbers;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) continue;
    char* end = nullptr;
    numbers.push_back(std::strtod(text.c_str() + i, &end));
    i = static_cast<size_t>(end - text.c_str());
  }
  return numbers;
}

namespace t = thresholds;

double Percents(double share) { return share * 100; }
double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double Mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

// Every number of the help, and no other, is that of the threshold that the rule applies.
TEST(FindingRules, TheHelpNamesTheThresholdsThatDecide) {
  const std::map<std::string, std::vector<double>> expected{
      {"out-of-memory", {Seconds(t::kEndedByRefusalNs)}},
      {"rank-died", {Seconds(t::kEndedTogetherNs)}},
      {"rank-stopped", {Seconds(t::kStopNs)}},
      {"memory-leak", {t::kLeakZScore, t::kLeakRises, Percents(t::kLeakLevelShare)}},
      {"memory-pressure", {Percents(t::kMemoryLeftShare)}},
      {"fragmentation", {t::kFragmentedRatio, Mebibytes(t::kFragmentedBytes)}},
      {"pool-footprint", {t::kPoolRatio, Mebibytes(t::kPoolBytes)}},
      {"straggler-slow-gpu", {t::kSlowKernelRatio, t::kRobustZScore}},
      {"straggler-unexplained", {Percents(t::kExplainedDelayShare)}},
      {"straggler-intermittent", {Percents(t::kPersistentStepsShare)}},
      {"two-speeds",
       {t::kGroupRanks, 1, t::kGroupOneIn, Percents(t::kGroupsApartShare), t::kGroupsApartRatio,
        Percents(t::kWaitedStepShare)}},
      {"imbalance", {Percents(t::kImbalanceStepShare), Percents(t::kStragglersExplainShare)}},
      {"slow-network",
       {Percents(t::kExposedStepShare), t::kSlowedRatio, t::kSlowedRatio,
        Percents(t::kIndirectExposedStepShare), Percents(t::kSlowLinkPeakShare),
        Percents(t::kSlowReferenceShare)}},
      {"bucket-too-large",
       {Percents(t::kIndirectExposedStepShare), Mebibytes(t::kHugeBucketBytes),
        Percents(t::kHugeBucketBytesShare)}},
      {"bucket-too-small",
       {Percents(t::kExposedStepShare), t::kTinyBucketCalls, Mebibytes(t::kTinyBucketBytes),
        Percents(t::kTinyBucketTimeShare)}},
      {"communication-unheard", {Percents(t::kIndirectExposedStepShare), Percents(t::kUnheardTimeShare)}},
      {"pipeline-bubble", {Percents(t::kBubbleStepShare)}},
      {"communication-bound", {Percents(t::kBoundStepShare)}},
      {"poor-overlap", {Percents(t::kExposedStepShare), Percents(t::kPoorOverlapShare)}},
      {"input-bound", {Percents(t::kInputStepShare)}},
      {"launch-bound", {Percents(t::kLaunchStepShare)}},
      {"sync-in-loop", {Percents(t::kSyncStepShare)}},
      {"pageable-copies", {Percents(t::kPageableStepShare)}},
      {"low-mfu", {Percents(t::kLowMfuShare)}},
      {"options-mistaken", {Percents(t::kMostMfuShare), Percents(t::kMostLinkPeakShare)}},
      {"warmup-dominated", {Percents(t::kWarmupRunShare)}},
      {"long-steps",
       {Percents(t::kLongStepsShare), Percents(t::kLongStepMedianShare), t::kLongStepSpreadRatio,
        Percents(t::kLongStepsCostStepShare)}},
      {"capture-incomplete", {1, t::kLateRecordsOneIn}},
      {"costly-capture", {Percents(t::kCostlyTimeShare)}},
      {"graph-nodes", {Percents(t::kGraphNodesTimeShare), Percents(t::kInvalidNodesShare)}},
      {"clock-stepped", {static_cast<double>(t::kClockStepNs) / 1e6}},
      {"device-clock", {static_cast<double>(model::DeviceClock::kAgreesWithinNs) / 1e6}}};
  size_t found = 0;
  for (const FindingRule& rule : FindingRules()) {
    const auto numbers = expected.find(rule.id);
    found += numbers == expected.end() ? 0 : 1;
    EXPECT_THAT(NumbersIn(rule.holds_when),
                ::testing::Pointwise(::testing::DoubleNear(1e-6),
                                     numbers == expected.end() ? std::vector<double>{} : numbers->second))
        << rule.id << ": " << rule.holds_when;
  }
  EXPECT_EQ(found, expected.size()) << "a finding that does not exist";
  EXPECT_THAT(NumbersIn(HoldsUpText()),
              ::testing::Pointwise(
                  ::testing::DoubleNear(1e-6),
                  {Percents(model::LateSteps::kLateShares[0]), t::kLatePValue,
                   Percents(t::kLateLongerStepShare), Percents(t::kLateCostStepShare),
                   Percents(t::kWaitedStepShare), t::kRobustZScore, Percents(t::kBlamedStepsShare),
                   t::kWaitedOfTwoRatio, Percents(t::kWaitedStepShare), Percents(t::kSlowStageStepShare)}));
}

}  // namespace
}  // namespace gpuprobe::analysis
