#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "collector/model/statistics/distribution.h"
#include "collector/model/statistics/interval_union.h"

namespace gpuprobe::model {
namespace {

TEST(Distribution, EmptyIsAllZero) {
  const Summary s = Distribution().Summarize();
  EXPECT_EQ(s.count, 0u);
  EXPECT_EQ(s.min, 0u);
  EXPECT_EQ(s.max, 0u);
  EXPECT_EQ(s.mean, 0);
}

TEST(Distribution, KnownValues) {
  Distribution d;
  for (const uint64_t v : {4, 1, 3, 2}) d.Add(v);
  const Summary s = d.Summarize();
  EXPECT_EQ(s.count, 4u);
  EXPECT_EQ(s.total, 10u);
  EXPECT_EQ(s.min, 1u);
  EXPECT_EQ(s.max, 4u);
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_NEAR(s.std, std::sqrt(5.0 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(s.p50, 2.5);
  EXPECT_NEAR(s.p95, 3.85, 1e-12);  // numpy.percentile([1, 2, 3, 4], 95)
  EXPECT_TRUE(s.quantiles_exact);
}

TEST(Distribution, StandardDeviationOfLargeEqualValuesIsZero) {
  Distribution d;
  for (int i = 0; i < 1000; ++i) d.Add(3'600'000'000'000);  // an hour
  EXPECT_LT(d.Summarize().std, 1.0);
}

// The histogram's quantiles against sorting, within the error that it states.
TEST(Distribution, HistogramStaysWithinItsStatedError) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> durations(10, 2);
  Distribution d(1000);
  std::vector<uint64_t> all;
  for (int i = 0; i < 50000; ++i) {
    all.push_back(static_cast<uint64_t>(durations(random)));
    d.Add(all.back());
  }
  std::sort(all.begin(), all.end());
  const Summary s = d.Summarize();
  EXPECT_FALSE(s.quantiles_exact);
  const auto check = [&](double q, double got) {
    const auto want = static_cast<double>(all[static_cast<size_t>(q * static_cast<double>(all.size() - 1))]);
    EXPECT_NEAR(got, want, want * Distribution::kHistogramError + 1) << q;
  };
  check(0.50, s.p50);
  check(0.95, s.p95);
  check(0.99, s.p99);
  EXPECT_EQ(s.min, all.front());
  EXPECT_EQ(s.max, all.back());
}

TEST(Distribution, ZeroStaysZeroInTheHistogram) {
  Distribution zeros(8);
  for (int i = 0; i < 100; ++i) zeros.Add(0);
  zeros.Add(5000);
  const Summary s = zeros.Summarize();
  EXPECT_FALSE(s.quantiles_exact);
  EXPECT_EQ(s.p50, 0);
  EXPECT_EQ(s.p95, 0);
  EXPECT_EQ(s.max, 5000u);
  Distribution merged(8);
  merged.Add(7);
  merged.Merge(zeros);
  EXPECT_EQ(merged.Summarize().p50, 0) << "buckets below the first one that was there";
}

TEST(Distribution, MergingIsAddingOneByOne) {
  std::mt19937_64 random(2);
  for (const size_t limit : {size_t{100}, size_t{100000}}) {
    Distribution whole(limit);
    Distribution a(limit);
    Distribution b(limit);
    for (int i = 0; i < 1000; ++i) {
      const uint64_t v = random() % 1'000'000;
      whole.Add(v);
      (i % 3 == 0 ? a : b).Add(v);
    }
    a.Merge(b);
    const Summary w = whole.Summarize();
    const Summary m = a.Summarize();
    EXPECT_EQ(m.count, w.count);
    EXPECT_EQ(m.total, w.total);
    EXPECT_EQ(m.min, w.min);
    EXPECT_EQ(m.max, w.max);
    EXPECT_DOUBLE_EQ(m.std, w.std);
    EXPECT_DOUBLE_EQ(m.p50, w.p50);
    EXPECT_DOUBLE_EQ(m.p99, w.p99);
  }
}

TEST(IntervalUnion, OverlapTouchAndReverse) {
  IntervalUnion u;
  u.Add(10, 20);
  u.Add(15, 25);
  u.Add(25, 30);  // touches
  u.Add(50, 40);  // reversed: ignored
  u.Add(5, 7);    // late
  EXPECT_EQ(u.TotalNs(), 22u);
}

// Against a bitmap, on random input in random order.
TEST(IntervalUnion, AgreesWithBruteForce) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    constexpr uint64_t kSpan = 4000;
    std::vector<bool> covered(kSpan + 200);
    IntervalUnion u;
    const int n = static_cast<int>(random() % 3000);
    const uint64_t longest = 1 + random() % 60;
    for (int i = 0; i < n; ++i) {
      const uint64_t start = random() % kSpan;
      const uint64_t end = start + random() % longest;
      u.Add(start, end);
      for (uint64_t t = start; t < end; ++t) covered[t] = true;
    }
    EXPECT_EQ(u.TotalNs(), static_cast<uint64_t>(std::count(covered.begin(), covered.end(), true)));
  }
}

TEST(IntervalUnion, ForgetsTheOldWithoutLosingTheSum) {
  IntervalUnion u(100);
  for (uint64_t i = 0; i < 10000; ++i) u.Add(i * 10, i * 10 + 4);
  EXPECT_EQ(u.TotalNs(), 40000u);
  // What comes later than it can remember is cut.
  u.Add(0, 5);
  EXPECT_EQ(u.TotalNs(), 40000u);
}

TEST(IntervalUnion, MergeCoversBoth) {
  IntervalUnion a;
  IntervalUnion b;
  a.Add(0, 10);
  a.Add(20, 30);
  b.Add(5, 25);
  b.Add(100, 101);
  a.Merge(b);
  EXPECT_EQ(a.TotalNs(), 31u);
}

}  // namespace
}  // namespace gpuprobe::model
