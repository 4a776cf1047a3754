// Which ranks are called slow, and which are not.
#include "collector/analysis/stragglers/slow_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "collector/analysis/build_report.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

struct Work {
  uint64_t gemm_ns = 100'000;
  int gemms = 20;
  uint64_t nccl_ns = 50'000;
};

// One rank: GEMMs, a small kernel, and an NCCL kernel of its own length.
void AddRank(model::JobModel& job, int rank, int ranks, const Work& work) {
  model::ProcessModel& process = job.Join(MakeHello(rank, ranks));
  BatchBuilder batch;
  batch.String(1, "gemm").String(2, "small").String(3, "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LLv");
  for (uint32_t i = 1; i <= 3; ++i) batch.Site(i, i, static_cast<uint32_t>(rank));
  uint64_t now = kStart;
  const auto run = [&](uint64_t duration, uint32_t site) {
    batch.Kernel(now, now + duration, site);
    now += duration + 1000;
  };
  for (int i = 0; i < work.gemms; ++i) run(work.gemm_ns, 1);
  for (int i = 0; i < 10; ++i) run(1000, 2);
  for (int i = 0; i < 10; ++i) run(work.nccl_ns, 3);
  ASSERT_TRUE(process.Apply(batch.batch()).ok());
}

std::vector<Straggler> Stragglers(const std::vector<Work>& ranks) {
  model::JobModel job;
  for (size_t i = 0; i < ranks.size(); ++i)
    AddRank(job, static_cast<int>(i), static_cast<int>(ranks.size()), ranks[i]);
  job.Finish();
  return BuildReport(job, {}).stragglers;
}

TEST(SlowRanks, TheSlowOneIsNamedWithItsSlowdownAndWhatItCosts) {
  std::vector<Work> ranks(4);
  ranks[2].gemm_ns = 130'000;
  const std::vector<Straggler> found = Stragglers(ranks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].device, 2u);
  EXPECT_EQ(found[0].kernel, "gemm");
  EXPECT_DOUBLE_EQ(found[0].extra_ns, 20 * 30'000.0);
  // 20 x 130 us + 10 x 1 us against 20 x 100 us + 10 x 1 us.
  EXPECT_DOUBLE_EQ(found[0].slowdown, 2'610'000.0 / 2'010'000.0);
  EXPECT_DOUBLE_EQ(found[0].kernel_elsewhere_ns, 100'000);
}

TEST(SlowRanks, EqualRanksAndSmallDifferencesGiveNobody) {
  EXPECT_TRUE(Stragglers(std::vector<Work>(8)).empty());
  std::vector<Work> ranks(8);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].gemm_ns += i * 1000;
  EXPECT_TRUE(Stragglers(ranks).empty());
}

TEST(SlowRanks, WaitingInACollectiveIsNotSlowness) {
  std::vector<Work> ranks(4);
  for (size_t i = 1; i < ranks.size(); ++i) ranks[i].nccl_ns = 900'000;
  EXPECT_TRUE(Stragglers(ranks).empty());
}

TEST(SlowRanks, MoreWorkIsNotSlowerWork) {
  std::vector<Work> ranks(4);
  ranks[1].gemms = 40;
  ranks[1].gemm_ns = 130'000;
  EXPECT_TRUE(Stragglers(ranks).empty());
}

TEST(SlowRanks, WideSpreadMeansThatNobodyStandsOut) {
  std::vector<Work> ranks(6);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].gemm_ns += i * 20'000;
  EXPECT_TRUE(Stragglers(ranks).empty());
}

TEST(SlowRanks, OfTwoRanksEitherMayBeTheOddOne) {
  std::vector<Work> ranks(2);
  ranks[1].gemm_ns = 200'000;
  EXPECT_TRUE(Stragglers(ranks).empty());
}

TEST(SlowRanks, SeveralSlowOnesComeWorstFirst) {
  std::vector<Work> ranks(8);
  ranks[5].gemm_ns = 150'000;
  ranks[1].gemm_ns = 120'000;
  const std::vector<Straggler> found = Stragglers(ranks);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, 5);
  EXPECT_EQ(found[1].rank, 1);
}

}  // namespace
}  // namespace gpuprobe::analysis
