// More work, and the same work done more slowly, on kernels that look alike otherwise.
#include "collector/analysis/stragglers/rank_work.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuprobe::analysis {
namespace {

constexpr double kNsPerUs = 1e3;

KernelWork Calls(double calls, double mean_us, double threads = 1e6) {
  return {.calls = calls, .time_ns = calls * mean_us * kNsPerUs, .threads = threads};
}

// Four ranks: two matrix products and an optimizer.
std::vector<RankWork> Even(size_t ranks = 4) {
  return std::vector<RankWork>(ranks, RankWork{{"forward_gemm", Calls(8, 400)},
                                               {"backward_gemm", Calls(8, 800)},
                                               {"adam_update", Calls(2, 600)}});
}

WorkDifference Last(const std::vector<RankWork>& ranks) { return WorkDifferencesOf(ranks).back(); }

TEST(RankWork, EvenRanksDoNotDiffer) {
  const WorkDifference d = Last(Even());
  EXPECT_TRUE(d.known);
  EXPECT_DOUBLE_EQ(d.more_ns, 0);
  EXPECT_DOUBLE_EQ(d.slower_ns, 0);
  EXPECT_FALSE(d.IsMore());
}

TEST(RankWork, AKernelThatOnlyOneRankHasIsMoreWork) {
  std::vector<RankWork> ranks = Even();
  ranks[3]["head_gemm"] = Calls(16, 1200, 132 * 256);
  const WorkDifference d = Last(ranks);
  EXPECT_TRUE(d.IsMore());
  EXPECT_DOUBLE_EQ(d.more_ns, 16 * 1200 * kNsPerUs);
  EXPECT_DOUBLE_EQ(d.slower_ns, 0);
  EXPECT_DOUBLE_EQ(d.slowdown, 1);
  EXPECT_EQ(d.kernel.name, "head_gemm");
  EXPECT_TRUE(d.kernel.only_here);
  // A second rank has it, too, as the first and last stages of some models.
  ranks[0]["head_gemm"] = Calls(2, 1200, 132 * 256);
  EXPECT_FALSE(Last(ranks).kernel.only_here);
}

TEST(RankWork, AllKernelsSlowerAlikeAreASlowGpu) {
  for (const size_t count : {2u, 4u}) {
    std::vector<RankWork> ranks = Even(count);
    for (auto& [name, work] : ranks.back()) work.time_ns *= 1.3;
    const WorkDifference d = Last(ranks);
    EXPECT_FALSE(d.IsMore());
    EXPECT_NEAR(d.slowdown, 1.3, 1e-9);
    EXPECT_EQ(d.kernel.name, "backward_gemm");
    EXPECT_FALSE(d.either);
    EXPECT_TRUE(d.as_fast.empty());
  }
}

TEST(RankWork, APersistentKernelThatGrowsAloneIsMoreWork) {
  std::vector<RankWork> ranks = Even();
  for (RankWork& rank : ranks) rank["expert_gemm"] = Calls(8, 500, 132 * 256);
  ranks[3]["expert_gemm"] = Calls(8, 1100, 132 * 256);
  const WorkDifference d = Last(ranks);
  EXPECT_TRUE(d.IsMore());
  EXPECT_DOUBLE_EQ(d.more_ns, 8 * 600 * kNsPerUs);
  EXPECT_EQ(d.kernel.name, "expert_gemm");
  EXPECT_EQ(d.as_fast, "backward_gemm");
}

TEST(RankWork, MoreThreadsExplainAtMostAsMuchTime) {
  std::vector<RankWork> ranks = Even();
  ranks[3]["forward_gemm"] = Calls(8, 800, 2e6);
  EXPECT_TRUE(Last(ranks).IsMore());
  EXPECT_DOUBLE_EQ(Last(ranks).slower_ns, 0);
  // A tenth more threads, and twice the time: mostly slower.
  ranks[3]["forward_gemm"] = Calls(8, 800, 1.1e6);
  EXPECT_FALSE(Last(ranks).IsMore());
  EXPECT_NEAR(Last(ranks).more_ns, 8 * 40 * kNsPerUs, 1);
}

TEST(RankWork, SlowMatrixProductsBesideOtherKernelsThatAreNotMayBeEither) {
  std::vector<RankWork> ranks = Even();
  ranks[3]["forward_gemm"].time_ns *= 1.4;
  ranks[3]["backward_gemm"].time_ns *= 1.4;
  const WorkDifference d = Last(ranks);
  EXPECT_FALSE(d.IsMore());
  EXPECT_TRUE(d.either);
  EXPECT_EQ(d.as_fast, "adam_update");
}

TEST(RankWork, OtherKernelsForTheSameWorkCancelOut) {
  std::vector<RankWork> ranks = Even();
  ranks[3]["other_forward_gemm"] = Calls(8, 420);
  ranks[3].erase("forward_gemm");
  const WorkDifference d = Last(ranks);
  EXPECT_NEAR(d.more_ns, 8 * 20 * kNsPerUs, 1);
}

TEST(RankWork, WithoutKernelsNothingIsKnown) {
  EXPECT_FALSE(Last(std::vector<RankWork>(4)).known);
  EXPECT_FALSE(Last({RankWork{{"gemm", Calls(1, 1)}}}).known);
}

}  // namespace
}  // namespace gpuprobe::analysis
