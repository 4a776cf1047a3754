// Which ranks of a large job have series of their own, and for how long.
#include "collector/analysis/suspects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"

namespace gpuprobe::analysis {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uint64_t kSecondNs = 1'000'000'000;

// A job whose ranks cause waiting at a rate, looked at once a second.
struct Watched {
  explicit Watched(size_t ranks) : cost(ranks, 0) {
    for (size_t i = 0; i < ranks; ++i) {
      RankNumbers& rank = job.ranks.emplace_back();
      rank.rank = absl::StrCat(i);
      rank.host = "n1";
    }
  }
  std::vector<size_t> After(uint64_t seconds) {
    std::vector<size_t> chosen;
    for (uint64_t i = 0; i < seconds; ++i) {
      now_ns += kSecondNs;
      for (size_t rank = 0; rank < cost.size(); ++rank)
        job.ranks[rank].caused_wait_ns += static_cast<uint64_t>(cost[rank] * kSecondNs);
      chosen = suspects.Choose(job, now_ns);
    }
    return chosen;
  }

  JobNumbers job;
  std::vector<double> cost;  // shares of the time
  Suspects suspects;
  uint64_t now_ns = 1000 * kSecondNs;
};

TEST(Suspects, AreAllRanksOfASmallJob) {
  Watched job(3);
  EXPECT_THAT(job.After(1), ElementsAre(0, 1, 2));
}

TEST(Suspects, ARankThatBecomesLateIsThereWithinSeconds) {
  Watched job(1024);
  std::vector<size_t> first(Suspects::kMost);
  std::iota(first.begin(), first.end(), size_t{0});
  EXPECT_EQ(job.After(30), first) << "there is room, and nobody is late";
  job.cost[700] = 0.3;
  const std::vector<size_t> chosen = job.After(3);
  EXPECT_THAT(chosen, SizeIs(Suspects::kMost));
  EXPECT_THAT(chosen, Contains(700));
  job.cost[700] = 0;
  EXPECT_THAT(job.After(590), Contains(700)) << "it stays for ten minutes";
}

TEST(Suspects, NoiseChangesNothing) {
  Watched job(1024);
  const std::vector<size_t> before = job.After(30);
  for (uint64_t round = 0; round < 60; ++round) {
    job.cost.assign(1024, 0);
    job.cost[(round * 37) % 1024] = 0.009;
    EXPECT_EQ(job.After(10), before);
  }
}

TEST(Suspects, AHaltedRankIsOne) {
  Watched job(1024);
  job.After(30);
  job.job.ranks[900].halted = true;
  EXPECT_THAT(job.After(1), Contains(900));
}

TEST(Suspects, ThoseThatCostMostOfManyThatAreLate) {
  Watched job(1024);
  job.After(30);
  for (size_t rank = 500; rank < 600; ++rank) job.cost[rank] = 0.02;
  job.cost[560] = 0.4;
  EXPECT_THAT(job.After(60), Contains(560));
  job.cost[1000] = 0.5;
  EXPECT_THAT(job.After(60), Not(Contains(1000))) << "all that are there have cost something lately";
  for (size_t rank = 500; rank < 600; ++rank) job.cost[rank] = 0;
  EXPECT_THAT(job.After(900), Contains(1000));
}

TEST(Suspects, ARankThatBeganAgainHasCostNothing) {
  Watched job(64);
  job.After(30);
  job.cost[40] = 0.5;
  job.After(10);
  job.job.ranks[40].caused_wait_ns = 0;
  EXPECT_THAT(job.After(2), Contains(40));
}

}  // namespace
}  // namespace gpuprobe::analysis
