// What findings conclude from reports that are made for them, and that the advice follows from the evidence:
// each with a report that has the trouble, and one that nearly has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/job/late_steps.h"
#include "collector/records/device_clock.h"
#include "collector/report/report.h"
#include "tests/collector/analysis/findings_fixture.h"
#include "tests/collector/testing/units.h"

namespace gpuprobe::analysis {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using gpuprobe::testing::kMiB;
constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(StragglerFinding, SlowCopiesPointToTheBusOfThatDevice) {
  Report r = Steady();
  r.stragglers = {SlowCopies()};
  const auto found = Of("straggler-slow-copies", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].statement,
              HasSubstr("The other 7 ranks wait for rank 3, which lengthens the step by"));
  EXPECT_EQ(found[0].evidence, "Its copies take 1.20 ms longer per step than the others'.");
  EXPECT_EQ(found[0].advice, "Compare the PCIe link of GPU 3 on n1 with those of the other ranks.");
  EXPECT_DOUBLE_EQ(*found[0].cost_ns_per_step, 1e6);
  r.stragglers[0].cause = Straggler::Cause::kLateInput;
  EXPECT_TRUE(Of("straggler-slow-copies", r).empty());
}

TEST(StragglerFinding, OfALateRankThatCostsNothingNothingIsSaid) {
  Report r = Steady();
  r.stragglers = {SlowCopies()};
  r.stragglers[0].lost_ns_per_step = 0;
  for (const auto cause :
       {Straggler::Cause::kSlowCopies, Straggler::Cause::kLateLaunch, Straggler::Cause::kLateInput}) {
    r.stragglers[0].cause = cause;
    EXPECT_TRUE(Of("straggler-slow-copies", r).empty());
    EXPECT_TRUE(Of("straggler-late-launch", r).empty());
    EXPECT_TRUE(Of("straggler-late-input", r).empty());
  }
  // Slower kernels are worth knowing.
  r.stragglers[0].cause = Straggler::Cause::kSlowKernels;
  r.stragglers[0].slowdown = 1.3;
  EXPECT_TRUE(Of("straggler-slow-gpu", r).empty());
  r.stragglers[0].extra_ns = 5e6;
  const auto found = Of("straggler-slow-gpu", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].statement, HasSubstr("its kernels run 1.30x slower"));
}

// Ranks wait 2 ms per step for each other, and all of it is exposed.
Report Waiting(const std::vector<double>& caused_ms) {
  Report r = Steady();
  r.communication.waited_ns = 2e6;
  r.communication.exposed_wait_ns = 2e6;
  for (size_t i = 0; i < caused_ms.size(); ++i) {
    r.ranks[i].caused.per_step_ns = caused_ms[i] * 1e6;
    r.ranks[i].caused.steps = 3;
    r.ranks[i].caused.steps_blamed = caused_ms[i] > 0.5 ? 3 : 0;
  }
  return r;
}

TEST(ImbalanceFinding, SaysThatNobodyIsAtFaultOnlyWhereBlameIsSpread) {
  const auto spread = Of("imbalance", Waiting({0.3, 0.1, 0.2, 0.5, 0.2, 0.3, 0.2, 0.2}));
  ASSERT_EQ(spread.size(), 1u);
  EXPECT_THAT(spread[0].statement, HasSubstr("no single rank is at fault"));
  EXPECT_THAT(spread[0].evidence, HasSubstr("rank 3 causes the largest share of the waiting, 25.0 %"));

  Report r = Waiting({0.01, 0, 0, 2, 0, 0, 0, 0});
  r.ranks[3].step_means.compute_ns = 11e6;
  const auto one = Of("imbalance", r);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_THAT(one[0].statement, HasSubstr("% of it for rank 3), which lengthens"));
  EXPECT_THAT(one[0].statement, Not(HasSubstr("at fault")));
  EXPECT_THAT(one[0].evidence, HasSubstr("for rank 3 in 3 of 3 steps"));
  EXPECT_THAT(one[0].evidence, HasSubstr("It computes 2.00 ms longer per step"));
  EXPECT_THAT(one[0].advice, HasSubstr("Record more steps"));

  // With two ranks, one always causes at least half.
  Report two = Waiting({0.8, 1.2});
  two.ranks.resize(2);
  EXPECT_THAT(Of("imbalance", two)[0].statement, HasSubstr("no single rank"));

  const auto unknown = Of("imbalance", Waiting({0, 0, 0}));
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_THAT(unknown[0].statement, HasSubstr("the rank at fault is unknown"));
}

TEST(ImbalanceFinding, IsNotReadFromCallsThatAreOffByOne) {
  Report r = Waiting({0.01, 0, 0, 2, 0, 0, 0, 0});
  Hang& mismatch = r.hangs.emplace_back();
  mismatch.kind = Hang::Kind::kMismatch;
  EXPECT_EQ(Of("imbalance", r).size(), 1u) << "one call differed, and the next ones meet again";
  mismatch.mismatches_after = 1;
  EXPECT_TRUE(Of("imbalance", r).empty());
}

void HostsWaitForCpu(Report& r, double share) {
  for (RankReport& rank : r.ranks) rank.host_load = {.observed_s = 5, .waits_for_cpu = share};
}

TEST(ImbalanceFinding, IsNotSaidOfHostsThatHadNoCpuByTurns) {
  Report r = Waiting({0.3, 0.1, 0.2, 0.5, 0.2, 0.3, 0.2, 0.2});
  for (RankReport& rank : r.ranks) rank.step_means.pause_ns = 0.3e6;  // 2.4 ms in all
  EXPECT_EQ(Of("imbalance", r).size(), 1u) << "nothing is known of the machine";
  HostsWaitForCpu(r, 0.04);
  EXPECT_EQ(Of("imbalance", r).size(), 1u) << "a quiet machine";
  HostsWaitForCpu(r, 0.2);
  EXPECT_TRUE(Of("imbalance", r).empty());
  for (RankReport& rank : r.ranks) rank.step_means.pause_ns = 0.1e6;
  EXPECT_EQ(Of("imbalance", r).size(), 1u) << "GPUs compute while others wait for them";
}

TEST(ImbalanceFinding, NamesTheInputIfNothingElseVaries) {
  Report r = Waiting({0.3, 0.1, 0.2, 0.5, 0.2, 0.3, 0.2, 0.2});
  r.steps->input_ns.mean = 1e6;
  r.steps->input_ns.p95 = 5e6;
  r.steps->compute_ns.p95 = r.steps->compute_ns.p50 + 1e6;
  const Finding f = Of("imbalance", r)[0];
  EXPECT_THAT(f.evidence, HasSubstr("What varies is when their input comes: ranks wait 1.00 ms per step for "
                                    "it on average, and 5.00 ms or more in one step of 20."));
  EXPECT_THAT(f.advice, HasSubstr("data-loader workers"));
  r.steps->compute_ns.p95 += 1e6;
  EXPECT_THAT(Of("imbalance", r)[0].advice, HasSubstr("Balance")) << "the work varies, too";
  r.steps->compute_ns.p95 = r.steps->compute_ns.p50;
  r.steps->input_ns.mean = 0.5e6;
  EXPECT_THAT(Of("imbalance", r)[0].advice, HasSubstr("Balance")) << "too little for 2 ms of waiting";
}

TEST(TwoSpeedsFinding, IsNotSaidOfHostsThatHadNoCpuForLonger) {
  Report r = Steady();
  for (size_t i = 0; i < r.ranks.size(); ++i) {
    StepMeans& means = r.ranks[i].step_means;
    means.compute_ns = 8e6;
    (i % 2 == 0 ? means.host_bound_ns : means.exposed_comm_ns) = 2e6;
  }
  EXPECT_EQ(Of("two-speeds", r).size(), 1u);
  HostsWaitForCpu(r, 0.15);
  EXPECT_EQ(Of("two-speeds", r).size(), 1u) << "1.5 ms of each step; it costs 2 ms";
  HostsWaitForCpu(r, 0.25);
  EXPECT_TRUE(Of("two-speeds", r).empty());
  for (size_t i = 0; i < r.ranks.size(); i += 2) {
    r.ranks[i].step_means.host_bound_ns = 0;
    r.ranks[i].step_means.compute_ns = 10e6;
  }
  EXPECT_EQ(Of("two-speeds", r).size(), 1u) << "GPUs need no CPU";
}

TEST(MixedHardwareFinding, SaysWhatDiffers) {
  Report r = Steady();
  EXPECT_TRUE(Of("mixed-hardware", r).empty());
  r.conditions.differing = {"NCCL 2.27.3 on 1 rank, 2.28.9 on 7 ranks"};
  const auto found = Of("mixed-hardware", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].evidence, "NCCL 2.27.3 on 1 rank, 2.28.9 on 7 ranks.");
}

TEST(DetailDroppedFinding, SaysFromWhenOnSingleRecordsExist) {
  Report r = Steady();
  EXPECT_TRUE(Of("detail-dropped", r).empty());
  r.conditions.start_ns = 1'000'000'000;
  r.trust.detail_since_ns = 13'500'000'000;
  const auto found = Of("detail-dropped", r);
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

ExposedCalls Calls(std::string op, CommunicationRole role, double exposed_ms) {
  return {.op = std::move(op),
          .comm_ranks = 4,
          .role = role,
          .in_forward = role == CommunicationRole::kTensor,
          .calls_per_step = 16,
          .time_ns_per_step = exposed_ms * 1.1e6,
          .exposed_ns_per_step = exposed_ms * 1e6,
          .exposed_transfer_ns_per_step = exposed_ms * 1e6};
}

TEST(CommunicationBoundFinding, AdviceForGradientsIsAboutBackwardAndBuckets) {
  const Report r = Bound({Calls("AllReduce", CommunicationRole::kData, 3)});
  const auto bound = Of("communication-bound", r);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].advice, HasSubstr("Start reductions while backward still runs"));
  const auto overlap = Of("poor-overlap", r);
  ASSERT_EQ(overlap.size(), 1u);
  EXPECT_THAT(overlap[0].advice, HasSubstr("smaller first bucket"));
}

Buckets BucketsOf(double calls, int reductions) {
  Buckets b;
  b.op = "AllReduce";
  b.comm = "0123456789abcdef";
  b.sizes = {{.size_bytes = 8 << 20, .calls_per_step = calls, .transfer_ns = 1e6, .busbw = {}}};
  b.calls_per_step = calls;
  b.bytes_per_step = calls * (8 << 20);
  b.reductions_per_step = reductions;
  b.transfer_ns_per_step = calls * 1e6;
  return b;
}

TEST(PoorOverlapFinding, OneCallForAllGradientsHasNoFirstBucket) {
  Report r = Bound({Calls("AllReduce", CommunicationRole::kData, 3)});
  r.communication.buckets = BucketsOf(1, 1);
  const auto overlap = Of("poor-overlap", r);
  ASSERT_EQ(overlap.size(), 1u);
  EXPECT_THAT(overlap[0].advice, HasSubstr("in one call"));
  r.communication.buckets->bytes_per_step = 64 << 10;
  EXPECT_THAT(Of("poor-overlap", r)[0].advice, HasSubstr("accumulate gradients"));
  r.communication.buckets = BucketsOf(8, 1);
  EXPECT_THAT(Of("poor-overlap", r)[0].advice, HasSubstr("smaller first bucket"));
}

TEST(PoorOverlapFinding, IsNotSaidOfWhatTheLastBucketOfUsualSizeTakes) {
  Report r = Bound({Calls("AllReduce", CommunicationRole::kData, 3)});
  r.steps->time_ns.mean = 100e6;
  r.communication.step_ns = 100e6;
  r.communication.compute_ns = 80e6;
  r.communication.transfer_ns = 20e6;
  r.communication.exposed_transfer_ns = 5e6;
  r.communication.buckets = BucketsOf(8, 1);
  Buckets& b = *r.communication.buckets;
  b.transfer_ns_per_step = 20e6;
  EXPECT_TRUE(Of("poor-overlap", r).empty()) << "of 5 ms, 2.5 ms are the last bucket's";
  r.communication.exposed_transfer_ns = 6e6;
  EXPECT_EQ(Of("poor-overlap", r).size(), 1u);
  b.sizes[0].size_bytes = 16 * kMiB;
  EXPECT_TRUE(Of("poor-overlap", r).empty()) << "5 ms";
  b.sizes[0].size_bytes = 64 * kMiB;
  r.communication.exposed_transfer_ns = 12e6;
  EXPECT_EQ(Of("poor-overlap", r).size(), 1u) << "a smaller one would expose less";
}

TEST(PoorOverlapFinding, OnABusyMachineIsWhatAllStepsExpose) {
  Report r = Bound({Calls("SendRecv", CommunicationRole::kOther, 2)});
  r.communication.exposed_transfer_ns = 2e6;
  r.steps->exposed_comm_ns.min = 50'000;
  ASSERT_EQ(Of("poor-overlap", r).size(), 1u);
  HostsWaitForCpu(r, 0.2);
  EXPECT_TRUE(Of("poor-overlap", r).empty()) << "launched in time, it overlaps";
  r.steps->exposed_comm_ns.min = 1'900'000;
  EXPECT_EQ(Of("poor-overlap", r).size(), 1u) << "it never does";
}

TEST(RepeatedReductionFinding, IsTheCauseOfWhatItsCallsExpose) {
  Report r = Bound({Calls("AllReduce", CommunicationRole::kData, 3)});
  r.communication.buckets = BucketsOf(16, 4);
  const auto repeated = Of("reduced-each-micro-batch", r);
  ASSERT_EQ(repeated.size(), 1u);
  EXPECT_DOUBLE_EQ(*repeated[0].cost_ns_per_step, r.communication.exposed_transfer_ns * 0.75);
  EXPECT_THAT(repeated[0].evidence, HasSubstr("32.0 MiB in all"));
  EXPECT_THAT(repeated[0].advice, HasSubstr("no_sync"));
  EXPECT_TRUE(Of("poor-overlap", r).empty());
  EXPECT_TRUE(Of("communication-bound", r).empty()) << "it advises to accumulate";

  r.communication.buckets = BucketsOf(16, 1);
  EXPECT_TRUE(Of("reduced-each-micro-batch", r).empty()) << "each is reduced once";
  r.communication.buckets = BucketsOf(16, 4);
  r.communication.exposed_transfer_ns = 0.01 * r.communication.step_ns;
  EXPECT_TRUE(Of("reduced-each-micro-batch", r).empty()) << "compute hides it";
}

TEST(CommunicationBoundFinding, AdviceForCallsInsideTheLayersIsAboutTensorParallelism) {
  const Report r = Bound({Calls("AllReduce", CommunicationRole::kTensor, 2.9),
                          Calls("AllReduce", CommunicationRole::kData, 0.1)});
  const auto bound = Of("communication-bound", r);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].evidence,
              HasSubstr("16 AllReduce over 4 ranks inside layers (also in forward), 2.90 ms exposed"));
  EXPECT_THAT(bound[0].advice, HasSubstr("asynchronous tensor parallelism"));
  EXPECT_THAT(bound[0].advice, Not(HasSubstr("DDP")));
  EXPECT_TRUE(Of("poor-overlap", r).empty()) << "the same calls, and the same remedy";
}

TEST(CommunicationBoundFinding, AdviceForGatheredWeightsIsToPrefetchThem) {
  const auto bound = Of("communication-bound", Bound({Calls("AllGather", CommunicationRole::kSharded, 3)}));
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].advice, HasSubstr("Prefetch the next layer's weights"));
}

TEST(CommunicationBoundFinding, AdviceIsAboutWhatTransfersNotAboutWhereRanksWait) {
  ExposedCalls loss = Calls("AllReduce", CommunicationRole::kTensor, 3);
  loss.exposed_transfer_ns_per_step = 0.01e6;
  const auto bound =
      Of("communication-bound", Bound({loss, Calls("AllReduce", CommunicationRole::kData, 2.9)}));
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].advice, HasSubstr("Start reductions while backward still runs"));
}

TEST(CommunicationBoundFinding, IsNotSaidOfWhatOnlyCommunicates) {
  Report r = Bound({Calls("AllReduce", CommunicationRole::kOther, 3)});
  r.compute.only_communicates = true;
  EXPECT_TRUE(Of("communication-bound", r).empty());
  EXPECT_TRUE(Of("poor-overlap", r).empty());
}

TEST(CommunicationBoundFinding, OverHostsItAsksForTheNetworksPeak) {
  Report r = Bound({Calls("AllReduce", CommunicationRole::kData, 3)});
  EXPECT_THAT(Of("communication-bound", r)[0].advice, Not(HasSubstr("--link-peak")));
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
  const Finding f = Of("communication-bound", r)[0];
  EXPECT_THAT(f.evidence,
              HasSubstr("at most 9.50 GB/s bus bandwidth between the 2 hosts, 265 GB/s within one"));
  EXPECT_THAT(f.advice, HasSubstr("--link-peak"));
  r.communication.link_peak = 10;
  r.communication.link_peak_source = "--link-peak";
  EXPECT_THAT(Of("communication-bound", r)[0].advice, Not(HasSubstr("--link-peak")));
  // Then what crosses the hosts is slow, which is another finding, however fast they are within.
  r.communication.link_peak = 400;
  EXPECT_TRUE(Of("communication-bound", r).empty());
}

// Half of the communicator's ranks record elsewhere.
TEST(CommunicationUnheardFinding, StandsForEveryConclusionFromTransfers) {
  Report r = Bound({Calls("AllReduce", CommunicationRole::kData, 3)});
  CollectiveReport c;
  c.op = "AllReduce";
  c.comm = "9c1e000000000000";
  c.comm_ranks = 16;
  c.heard_ranks = 8;
  r.collectives = {c};
  EXPECT_TRUE(Of("communication-unheard", r).empty()) << "hardly any time is spent with them";
  EXPECT_FALSE(Of("communication-bound", r).empty());
  r.communication.unheard_share = 0.9;
  const auto found = Of("communication-unheard", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].statement,
            "30.0 % of the 10.0 ms step is exposed communication (3.00 ms). The share spent waiting for "
            "ranks that are not recorded here is unknown.");
  EXPECT_THAT(found[0].evidence, HasSubstr("Recorded ranks: 8 of 16 in communicator 9c1e0000."));
  EXPECT_DOUBLE_EQ(*found[0].cost_ns_per_step, 3e6);
  EXPECT_TRUE(Of("communication-bound", r).empty());
  EXPECT_TRUE(Of("poor-overlap", r).empty());
  r.communication.exposed_transfer_ns = 0.9e6;
  EXPECT_TRUE(Of("communication-unheard", r).empty()) << "not worth it";
}

// Two ranks that initialised CUDA, and of which nothing else was recorded.
Report Unused() {
  Report r;
  for (int i = 0; i < 2; ++i) {
    RankReport& rank = r.ranks.emplace_back();
    rank.rank = i;
    rank.label = std::to_string(i);
    rank.copies[v1::COPY_DIRECTION_H2D];
    rank.memory[v1::MEMORY_KIND_DEVICE];
  }
  r.conditions.duration_ns = 2'500'000'000;
  r.trust.timing_source = Trust::TimingSource::kCuptiActivity;
  return r;
}

std::vector<std::string> IdsOf(const Report& r) {
  std::vector<std::string> ids;
  for (const Finding& f : FindingsOf(r)) ids.push_back(f.id);
  return ids;
}

TEST(NoGpuWorkFinding, SaysHowTheProcessesEnded) {
  Report r = Unused();
  EXPECT_EQ(IdsOf(r), std::vector<std::string>{"no-gpu-work"}) << "and not that nothing stands out";
  Finding f = Of("no-gpu-work", r)[0];
  EXPECT_EQ(
      f.statement,
      "Nothing ran on a GPU: 2 processes initialised CUDA, and no kernel, copy, allocation or NCCL call "
      "was recorded in 2.50 s.");
  EXPECT_EQ(f.evidence, "") << "their ends were not seen";
  EXPECT_THAT(f.advice, HasSubstr("torch.cuda.is_available()"));
  for (RankReport& rank : r.ranks) {
    rank.end = {.kind = Halt::Kind::kEnded, .since_ns = 0, .exit_code = rank.rank == 1 ? 3 : 0};
  }
  f = Of("no-gpu-work", r)[0];
  EXPECT_EQ(f.evidence,
            "Rank 0 exited with code 0 at 00:00:00 UTC; rank 1 exited with code 3 at 00:00:00 UTC.");
  EXPECT_THAT(f.advice, HasSubstr("its own output says why"));
}

TEST(NoGpuWorkFinding, IsNotSaidWhereSomethingRanOrMayHaveRun) {
  const auto said = [](auto change) {
    Report r = Unused();
    change(r);
    return !Of("no-gpu-work", r).empty();
  };
  EXPECT_TRUE(said([](Report&) {}));
  EXPECT_FALSE(said([](Report& r) { r.ranks[1].kernel_count = 1; }));
  EXPECT_FALSE(said([](Report& r) { r.ranks[1].copies[v1::COPY_DIRECTION_H2D].count = 1; }));
  EXPECT_FALSE(said([](Report& r) { r.ranks[1].memory[v1::MEMORY_KIND_DEVICE].allocations = 1; }));
  EXPECT_FALSE(said([](Report& r) { r.ranks[1].out_of_memory.emplace_back(); })) << "it tried";
  EXPECT_FALSE(said([](Report& r) { r.trust.lost_total = 1; }));
  EXPECT_FALSE(said([](Report& r) { r.trust.cupti_taken = true; }));
  EXPECT_FALSE(said([](Report& r) { r.conditions.steps_recorded.emplace(); }));
  EXPECT_FALSE(said([](Report& r) { r.hangs.emplace_back(); })) << "that is what there is to say";
  EXPECT_FALSE(said([](Report& r) { r.ranks.clear(); }));
}

TEST(RanksMissingFinding, NamesRunsOfRanks) {
  Report r = Steady();
  r.conditions.ranks_expected = 16;
  r.conditions.ranks_heard = 8;
  ASSERT_EQ(Of("ranks-missing", r).size(), 1u);
  EXPECT_EQ(Of("ranks-missing", r)[0].evidence, "Missing: ranks 8-15.");
  r.conditions.ranks_expected = 9;
  EXPECT_EQ(Of("ranks-missing", r)[0].evidence, "Missing: rank 8.");
}

// Rank 0 is late in four of 149 steps, by 500 ms each.
Straggler Checkpoints() {
  Straggler s;
  s.rank = 0;
  s.cause = Straggler::Cause::kLateInput;
  s.persistent = false;
  s.late_steps = 4;
  s.compared_steps = 149;
  s.step_numbers = {30, 60, 90, 120};
  s.pattern = StepPattern{.every = 30, .length = 1};
  s.lost_ns_per_step = 500e6 * 4 / 149;
  s.cause_ns_per_step = 450e6 * 4 / 149;
  s.throughput_loss = 0.5;
  // By another count: waiting of 5 % of a step.
  s.caused.steps_blamed = 21;
  s.caused.first_blamed_step = 1;
  s.caused.last_blamed_step = 149;
  s.caused.per_step_ns = 15e6;
  return s;
}

TEST(StragglerIntermittentFinding, SaysWhichStepsAndHowLateTheseAre) {
  Report r = Steady();
  r.stragglers = {Checkpoints()};
  const Finding f = Of("straggler-intermittent", r)[0];
  EXPECT_THAT(f.statement, StartsWith("The other ranks wait for rank 0 every 30 steps (steps 30, 60, 90 and "
                                      "120; 4 of 149 steps); this lengthens these steps by 500 ms"));
  EXPECT_EQ(f.evidence, "In these steps, it waits 450 ms longer for its input.");
  EXPECT_EQ(f.about.steps, (std::vector<uint64_t>{30, 60, 90, 120}));
  r.stragglers[0].pattern.reset();
  EXPECT_THAT(
      Of("straggler-intermittent", r)[0].statement,
      StartsWith("The other ranks wait for rank 0 intermittently (in 4 of 149 steps: steps 30, 60, 90 "
                 "and 120); "));
}

TEST(StragglerIntermittentFinding, SaysThatTheOthersWaitForTheirInputToo) {
  Report r = Steady();
  r.stragglers = {Checkpoints()};
  for (RankReport& rank : r.ranks) rank.step_means.input_ns = 1e6;
  r.ranks[0].step_means.input_ns = 1.8e6;
  const Finding f = Of("straggler-intermittent", r)[0];
  EXPECT_THAT(f.evidence, EndsWith("The other ranks wait for their input, too: 1.00 ms per step on average, "
                                   "this one 1.80 ms."));
  EXPECT_THAT(f.advice, StartsWith("Loading is slow on all ranks"));
  r.ranks[0].step_means.input_ns = 2.2e6;
  EXPECT_THAT(Of("straggler-intermittent", r)[0].advice, Not(HasSubstr("on all ranks")));
}

TEST(MemoryElsewhereFinding, SaysWhoseMemoryIsOnWhoseGpu) {
  Report r = Steady();
  EXPECT_TRUE(Of("memory-elsewhere", r).empty());
  r.conditions.stray_memory.push_back(
      {.host = "n1",
       .ordinal = 0,
       .owner = "0",
       .users = {{.label = "1", .rank = 1, .peak_bytes = 300 * kMiB, .held_bytes = 300 * kMiB},
                 {.label = "2", .rank = 2, .peak_bytes = 200 * kMiB, .held_bytes = 0}}});
  const Finding f = Of("memory-elsewhere", r)[0];
  EXPECT_EQ(f.statement,
            "Ranks 1-2 hold memory on GPU 0 of n1, on which rank 0 computes: 300 MiB each at most, 500 MiB "
            "together.");
  EXPECT_EQ(f.evidence, "They compute on other GPUs. 300 MiB of it is still held at the end.");
  r.conditions.stray_memory[0].users.pop_back();
  EXPECT_EQ(Of("memory-elsewhere", r)[0].statement,
            "Rank 1 holds memory on GPU 0 of n1, on which rank 0 computes: 300 MiB.");
}

TEST(StragglerIntermittentFinding, RanksThatAreLateByTurnsAreOneFinding) {
  Report r = Steady();
  for (const int rank : {1, 2}) {
    Straggler s;
    s.rank = rank;
    s.cause = Straggler::Cause::kLateLaunch;
    s.persistent = false;
    s.late_steps = 3;
    s.compared_steps = 160;
    s.lost_ns_per_step = 0.7e6;
    s.throughput_loss = 0.07;
    s.cause_ns_per_step = 0.7e6;
    s.pattern = StepPattern{.every = 51, .length = 1};
    const uint64_t at = 10 * static_cast<uint64_t>(rank);
    s.step_numbers = {at, at + 51, at + 102};
    r.stragglers.push_back(s);
  }
  const auto turns = Of("straggler-intermittent", r);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_THAT(turns[0].statement, StartsWith("Ranks 1-2 are late by turns, each every 51 steps"));
  EXPECT_THAT(turns[0].statement, EndsWith("by 1.40 ms (14.0 %)."));
  EXPECT_DOUBLE_EQ(*turns[0].cost_ns_per_step, 1.4e6);
  r.stragglers[1].pattern->every = 40;
  EXPECT_EQ(Of("straggler-intermittent", r).size(), 2u) << "each for itself";
}

TEST(PipelineBubbleFinding, GivesNoBoundThatTheJobBeats) {
  Report r = Bound({Calls("Send", CommunicationRole::kPipeline, 2)});
  r.communication.pipeline = Pipeline{.stages = 4,
                                      .microbatches = 1,
                                      .bubble = 0.15,
                                      .least_bubble = 0.75,
                                      .collective_ns = 0,
                                      .exposed_collective_ns = 0};
  ASSERT_EQ(Of("pipeline-bubble", r).size(), 1u);
  EXPECT_THAT(Of("pipeline-bubble", r)[0].evidence, Not(HasSubstr("75")));
  r.communication.pipeline->microbatches = 32;
  r.communication.pipeline->least_bubble = 0.086;
  for (RankReport& rank : r.ranks) rank.step_means = {.steps = 20, .compute_ns = 80e6};
  r.ranks[0].step_means.compute_ns = 100e6;
  EXPECT_THAT(Of("pipeline-bubble", r)[0].advice, StartsWith("Balance the stages"));
  r.ranks[0].step_means.compute_ns = 80e6;
  EXPECT_THAT(Of("pipeline-bubble", r)[0].advice, StartsWith("Use more microbatches"));
}

TEST(OptionsMistakenFinding, SaysWhatCannotBe) {
  Report r = Steady();
  r.utilisation.mfu = 0.99;
  EXPECT_TRUE(Of("options-mistaken", r).empty());
  r.utilisation.mfu = 5.106;
  EXPECT_EQ(Of("options-mistaken", r)[0].statement, "MFU of 510.6 % is impossible: no GPU exceeds its peak.");
  r.utilisation.mfu.reset();
  CollectiveReport& c = r.collectives.emplace_back();
  c.op = "AllReduce";
  c.comm_ranks = 8;
  c.size_bytes = 25 * kMiB;
  c.peak_share = 2.65;
  r.communication.link_peak = 100;
  r.communication.link_peak_source = "NVLink of H100";
  EXPECT_TRUE(Of("options-mistaken", r).empty()) << "nobody told it";
  r.communication.link_peak_source = "--link-peak";
  EXPECT_EQ(Of("options-mistaken", r)[0].statement,
            "Transfers reach 265.0 % of --link-peak, so the peak is above 100 GB/s.");
  EXPECT_THAT(Of("options-mistaken", r)[0].evidence, HasSubstr("265 GB/s bus bandwidth"));
  c.peak_share = 1.05;
  r.conditions.step_marker = "nvtx:nothing";
  EXPECT_TRUE(Of("options-mistaken", r).empty());
  r.steps.reset();
  EXPECT_THAT(Of("options-mistaken", r)[0].statement, HasSubstr("--step-marker nvtx:nothing marks no steps"));
}

TEST(PipelineBubbleFinding, DoesNotHideWhatIsExposedInsideTheStages) {
  Report r = Bound(
      {Calls("AllReduce", CommunicationRole::kTensor, 2.5), Calls("Send", CommunicationRole::kPipeline, 2)});
  r.communication.exposed_transfer_ns = 5e6;
  r.communication.pipeline = Pipeline{.stages = 2,
                                      .microbatches = 4,
                                      .bubble = 0.21,
                                      .least_bubble = 0.2,
                                      .collective_ns = 2.6e6,
                                      .exposed_collective_ns = 2.5e6};
  const auto bubble = Of("pipeline-bubble", r);
  ASSERT_EQ(bubble.size(), 1u);
  EXPECT_EQ(bubble[0].statement,
            "Pipeline bubble: stages wait for each other for 21.0 % of the 10.0 ms step.");
  EXPECT_THAT(bubble[0].advice, HasSubstr("more microbatches"));
  const auto bound = Of("communication-bound", r);
  ASSERT_EQ(bound.size(), 1u);
  EXPECT_THAT(bound[0].statement, HasSubstr("25.0 % of the 10.0 ms step"));
  r.ranks[0].step_means.compute_ns *= 1.3;
  r.communication.pipeline->bubble = 0.3;
  EXPECT_THAT(Of("pipeline-bubble", r)[0].advice, HasSubstr("Balance the stages"));
  r.communication.pipeline->bubble = 0.09;
  EXPECT_TRUE(Of("pipeline-bubble", r).empty());
}

TEST(PipelineBubbleFinding, LeavesTheTimeOfASlowStageToItsOwnFinding) {
  Report r = Bound({Calls("Send", CommunicationRole::kPipeline, 2)});  // two ranks
  r.communication.pipeline = Pipeline{.stages = 2, .microbatches = 32, .bubble = 0.3, .least_bubble = 0.03};
  // It computes for 4 ms more than the other, which stands still for that long: without them 10 ms are 6 ms,
  // of which 3 ms - 4 ms + 2 ms are left.
  Straggler slow;
  slow.rank = 1;
  slow.slow_stage = true;
  slow.lost_ns_per_step = 4e6;
  slow.cause_ns_per_step = 4e6;
  r.ranks.resize(2);
  r.stragglers = {slow};
  auto bubble = Of("pipeline-bubble", r);
  ASSERT_EQ(bubble.size(), 1u);
  EXPECT_EQ(bubble[0].statement,
            "Pipeline bubble: stages wait for each other for 30.0 % of the 10.0 ms step; with the slow stage "
            "as fast as the "
            "others, it would be 16.7 % of 6.00 ms.");
  EXPECT_NEAR(*bubble[0].cost_ns_per_step, 1e6, 1);
  EXPECT_THAT(bubble[0].advice, StartsWith("Use more microbatches")) << "the stage is the other finding's";
  // All of it is the stage's.
  r.communication.pipeline->bubble = 0.22;
  EXPECT_TRUE(Of("pipeline-bubble", r).empty());
  r.stragglers.clear();
  EXPECT_EQ(Of("pipeline-bubble", r).size(), 1u);
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
  const auto found = Of("rank-cut-off", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].evidence, "Ranks 0-5, 7, last data after 91.4 s.");
  r.trust.cut_off.resize(1);
  EXPECT_EQ(Of("rank-cut-off", r)[0].evidence, "Rank 0 (pid 4711), last data after 91.4 s.");
}

TEST(AttachedFinding, SaysWhatCannotBeKnown) {
  Report r = Steady();
  EXPECT_TRUE(Of("attached-late", r).empty());
  r.trust.attached.push_back({.who = "rank 0 (pid 4711)",
                              .ran_ns = 90'000'000'000,
                              .earlier_allocations = 2,
                              .earlier_communicators = 1});
  const auto found = Of("attached-late", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(
      found[0].statement,
      "Recording was attached to rank 0 (pid 4711), 90.0 s after the start; nothing from before is in this "
      "report.");
  EXPECT_NE(found[0].evidence.find("2 releases were of earlier memory."), std::string::npos);
  EXPECT_NE(found[0].evidence.find("1 NCCL call was on an earlier communicator."), std::string::npos);
}

TEST(JobStoppedFinding, CtrlCIsNoWarning) {
  Report r = Steady();
  r.conditions.start_ns = 1;
  for (RankReport& rank : r.ranks) {
    rank.cut_off = true;
    rank.end = Halt{.kind = Halt::Kind::kEnded, .signal = 2};
    r.trust.cut_off.push_back({.who = "rank " + rank.label + " (pid 4711)", .last_data_ns = 91'400'000'001});
  }
  ASSERT_EQ(Of("job-stopped", r).size(), 1u);
  EXPECT_EQ(Of("job-stopped", r)[0].statement,
            "The job was stopped by SIGINT; what its processes recorded last is missing.");
  EXPECT_TRUE(Of("rank-cut-off", r).empty());
  // A handler that exits as shells do.
  r.ranks[1].end = Halt{.kind = Halt::Kind::kEnded, .exit_code = 130};
  EXPECT_EQ(Of("job-stopped", r).size(), 1u);
  // One of them failed, and the rest was stopped for it.
  r.ranks[1].end = Halt{.kind = Halt::Kind::kEnded, .exit_code = 1};
  EXPECT_TRUE(Of("job-stopped", r).empty());
  EXPECT_EQ(Of("rank-cut-off", r).size(), 1u);
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
  EXPECT_THAT(Of("memory-leak", r)[0].statement,
              HasSubstr("Each of the 8 ranks holds 64.0 MiB more memory after every step"));
  EXPECT_THAT(Of("memory-pressure", r)[0].statement,
              HasSubstr("Each of the 8 ranks came within 3.7 % of its GPU's capacity"));
  for (size_t i = 3; i < 8; ++i) r.ranks[i].device_memory.clear();
  EXPECT_THAT(Of("memory-leak", r)[0].statement, HasSubstr("Rank 2 and 2 others hold 64.0 MiB"));
  EXPECT_THAT(Of("memory-pressure", r)[0].statement,
              HasSubstr("and 2 others came within 3.7 % of their GPUs' capacity"));
  for (size_t i = 1; i < 3; ++i) r.ranks[i].device_memory.clear();
  EXPECT_THAT(Of("memory-leak", r)[0].statement,
              HasSubstr("Rank 0 holds 64.0 MiB more memory after every step"));
  EXPECT_THAT(Of("memory-pressure", r)[0].statement,
              HasSubstr("Rank 0 came within 3.7 % of its GPU's capacity: 77.0 GiB of 80.0 GiB."));
}

TEST(RecordsLostFinding, CountsAsTheHeadlineDoes) {
  Report r = Steady();
  r.trust.lost_total = 37'870;
  r.trust.lost = {{"send_queue_full", 37'870}};
  const Finding f = Of("records-lost", r)[0];
  EXPECT_THAT(f.statement, HasSubstr("37,870 records were lost"));
  EXPECT_THAT(f.evidence, HasSubstr("send_queue_full 37,870"));
}

// What CUPTI costs is estimated; nodes of CUDA graphs are another finding's subject.
TEST(CostlyCaptureFinding, OurCodeAndTheLeastThatLaunchesCostAreATenth) {
  Report r = Steady();
  EXPECT_TRUE(Of("costly-capture", r).empty()) << "not measured";
  OwnCost& cost = r.trust.cost;
  cost.launches = 540'000;
  cost.own_fraction = 0.01;
  cost.graph_nodes_least = 0.02;
  cost.graph_nodes_most = 0.28;
  cost.expected_least = 0.02 + 0.089;
  cost.expected_most = 0.28 + 3 * 0.089;
  EXPECT_TRUE(Of("costly-capture", r).empty());
  cost.expected_least = 0.02 + 0.0901;
  cost.expected_most = 0.28 + 3 * 0.0901;
  const std::vector<Finding> found = Of("costly-capture", r);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].statement, HasSubstr("an estimated 10 % of the job's time or more"));
  EXPECT_THAT(found[0].evidence, HasSubstr("Our code takes 1 % of the time, CUPTI an estimated 9 to 27 % "
                                           "(540,000 launches of kernels"));
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

TEST(RankCutOffFinding, NothingIsMissingOfAJobThatStoodIdle) {
  Report r = Steady();
  for (RankReport& rank : r.ranks) r.trust.cut_off.push_back({.who = absl::StrCat("rank ", rank.label)});
  Hang hang;
  hang.kind = Hang::Kind::kNoWork;
  hang.ranks.resize(r.ranks.size());
  r.hangs = {hang};
  EXPECT_TRUE(Of("rank-cut-off", r).empty());
  r.hangs[0].ranks.pop_back();
  EXPECT_EQ(Of("rank-cut-off", r).size(), 1u) << "one of them may have worked";
  r.hangs[0].kind = Hang::Kind::kMissingRank;
  r.hangs[0].ranks.resize(r.ranks.size());
  EXPECT_EQ(Of("rank-cut-off", r).size(), 1u);
}

TEST(HealthyFinding, IsNotSaidOfAJobThatWaitsBeforeItsFirstStep) {
  Report r;
  r.trust.timing_source = Trust::TimingSource::kCuptiActivity;
  r.ranks.resize(2);
  Hang idle;
  idle.kind = Hang::Kind::kNoWork;
  idle.idle = true;
  idle.ranks.resize(2);
  r.hangs = {idle};
  EXPECT_EQ(FindingsOf(r).front().id, "job-idle");
  r.hangs[0].steps = 100;
  EXPECT_EQ(FindingsOf(r).front().id, "healthy") << "a server that has answered requests";
}

// Every number of the help, and no other, is that of the threshold that the rule applies.
TEST(FindingRules, TheHelpNamesTheThresholdsThatDecide) {
  const std::map<std::string, std::vector<double>> expected{
      {"out-of-memory", {Seconds(t::kEndedByRefusalNs)}},
      {"rank-died", {Seconds(t::kEndedTogetherNs)}},
      {"hang-creation", {static_cast<double>(t::kHangExcuses)}},
      {"hang-no-work",
       {static_cast<double>(t::kTrainingSteps), static_cast<double>(t::kNoWorkPauses), kHardlyBusyCpus}},
      {"job-idle", {static_cast<double>(t::kHangExcuses)}},
      {"rank-stopped", {Seconds(t::kStopNs)}},
      {"growing-steps", {double{t::kGrowthSteps}, t::kGrowthZScore, Percents(t::kGrowthShare)}},
      {"memory-leak", {t::kLeakZScore, t::kLeakRises, Percents(t::kLeakLevelShare)}},
      {"memory-pressure", {Percents(t::kMemoryLeftShare)}},
      {"memory-elsewhere", {Mebibytes(t::kStrayBytes)}},
      {"gpu-idle", {Mebibytes(t::kStrayBytes)}},
      {"gpu-imbalance", {Percents(t::kBusyDeviceStepShare), t::kBusyDeviceRatio}},
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
      {"reduced-each-micro-batch", {Percents(t::kRepeatedStepShare)}},
      {"bucket-too-large",
       {Percents(t::kIndirectExposedStepShare), Mebibytes(t::kHugeBucketBytes),
        Percents(t::kHugeBucketBytesShare)}},
      {"bucket-too-small",
       {Percents(t::kExposedStepShare), t::kTinyBucketCalls, Mebibytes(t::kTinyBucketBytes),
        Percents(t::kTinyBucketTimeShare)}},
      {"communication-unheard", {Percents(t::kIndirectExposedStepShare), Percents(t::kUnheardTimeShare)}},
      {"pipeline-bubble", {Percents(t::kBubbleStepShare)}},
      {"communication-bound", {Percents(t::kBoundStepShare)}},
      {"poor-overlap",
       {Percents(t::kExposedStepShare), static_cast<double>(t::kUsualBucketBytes >> 20),
        Percents(t::kPoorOverlapShare)}},
      {"cpu-starved",
       {Percents(t::kStarvedStepShare), Percents(t::kStarvedIdleShare), Percents(t::kWarmupRunShare)}},
      {"memory-starved",
       {Percents(t::kStarvedStepShare), Percents(t::kStarvedIdleShare), Percents(t::kWarmupRunShare)}},
      {"memory-calls", {Percents(t::kSyncStepShare)}},
      {"host-pause", {Percents(t::kInputStepShare)}},
      {"steps-unknown", {t::kKernelsOfAJob}},
      {"input-bound", {Percents(t::kInputStepShare)}},
      {"launch-bound", {Percents(t::kLaunchStepShare)}},
      {"sync-in-loop", {Percents(t::kSyncStepShare)}},
      {"pageable-copies", {Percents(t::kPageableStepShare)}},
      {"low-mfu", {Percents(t::kLowMfuShare)}},
      {"options-mistaken", {Percents(t::kMostMfuShare), Percents(t::kMostLinkPeakShare)}},
      {"warmup-dominated", {Percents(t::kWarmupRunShare)}},
      {"long-steps",
       {Percents(t::kLongStepsShare), Percents(t::kLongStepMedianShare), t::kLongStepSpreadRatio,
        Percents(t::kLongStepOfLongestShare), Percents(t::kLongStepsCostStepShare)}},
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

// What `trace --around` shows: where a finding is about no single step or moment, a typical step.
TEST(FindingMoment, IsTheStepOrTimeOfWhatWasFound) {
  Report r = Steady();
  const auto moment = [&](const char* id) {
    const Moment found = RuleOf(id).moment(r);
    return std::pair(found.step, found.time_ns);
  };
  constexpr std::nullopt_t kNone = std::nullopt;
  using Step = std::pair<std::optional<uint64_t>, std::optional<uint64_t>>;
  for (const FindingRule& rule : FindingRules()) {
    if (rule.moment == nullptr) continue;
    EXPECT_EQ(moment(rule.id), Step(kNone, kNone)) << rule.id << " was not found";
  }

  r.hangs.emplace_back().since_ns = 11;
  r.past_hangs.emplace_back().since_ns = 22;
  EXPECT_EQ(moment("hang-missing-rank"), Step(kNone, 11));
  EXPECT_EQ(moment("hang-over"), Step(kNone, 22)) << "not the one that is not over";

  r.ranks[2].end = {.kind = Halt::Kind::kEnded, .since_ns = 33};
  r.ranks[3].stops.push_back({.halt = {.since_ns = 44}, .until_ns = 55});
  r.ranks[4].cut_off = true;
  r.ranks[4].start_ns = 60;
  r.ranks[4].duration_ns = 6;
  EXPECT_EQ(moment("rank-died"), Step(kNone, 33));
  EXPECT_EQ(moment("rank-stopped"), Step(kNone, 44));
  EXPECT_EQ(moment("rank-cut-off"), Step(kNone, 66));

  for (const uint64_t peak : {70, 90, 80}) {
    DeviceMemoryReport& device = r.ranks[5].device_memory.emplace_back();
    device.high_water_bytes = peak;
    device.high_water_at_ns = peak + 7;
  }
  r.ranks[6].out_of_memory.resize(2);
  r.ranks[6].out_of_memory[0].time_ns = 98;
  r.ranks[6].out_of_memory[1].time_ns = 99;
  EXPECT_EQ(moment("memory-pressure"), Step(kNone, 97));
  EXPECT_EQ(moment("out-of-memory"), Step(kNone, 99)) << "the last refusal";

  r.long_steps.emplace();
  for (const auto& [step, time_ns] : {std::pair(12, 1e6), {30, 3e6}, {40, 2e6}}) {
    LongStepsReport::Step& longer = r.long_steps->steps.emplace_back();
    longer.step = static_cast<uint64_t>(step);
    longer.time_ns = time_ns;
  }
  EXPECT_EQ(moment("long-steps"), Step(30, kNone));

  NetworkReport::Slow slow;
  slow.since_step = 31;
  r.communication.network.emplace().slow = slow;
  EXPECT_EQ(moment("slow-network"), Step(31, kNone));

  r.stragglers = {SlowCopies()};
  r.stragglers[0].caused.steps_blamed = 1;
  r.stragglers[0].caused.last_blamed_step = 17;
  EXPECT_EQ(moment("straggler-slow-copies"), Step(17, kNone));
  r.stragglers[0].since_step = 20;
  EXPECT_EQ(moment("straggler-slow-copies"), Step(20, kNone));
  r.stragglers[0].stretch.emplace().first_step = 30;
  r.stragglers[0].stretch->last_step = 40;
  EXPECT_EQ(moment("straggler-slow-copies"), Step(35, kNone)) << "the middle of the stretch";
}

}  // namespace
}  // namespace gpuprobe::analysis
