#include "collector/analysis/distributions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gpuprobe::analysis {
namespace {

// With one degree of freedom Student's distribution is Cauchy's, and with two it has a closed form as well.
TEST(Distributions, ChancesAboveTAreThoseOfTheClosedForms) {
  for (const double t : {0.0, 0.5, 1.0, 3.0, 40.0}) {
    EXPECT_NEAR(ChanceAbove(t, 1), 0.5 - std::atan(t) / M_PI, 1e-12) << t;
    EXPECT_NEAR(ChanceAbove(t, 2), 0.5 - t / (2 * std::sqrt(2 + t * t)), 1e-12) << t;
  }
  EXPECT_NEAR(ChanceAbove(-1, 1), 0.75, 1e-12);
}

TEST(Distributions, ReachOf95PercentLeavesATailOnEachSide) {
  EXPECT_NEAR(Reach95(1), 12.706, 0.001);  // as in every table
  EXPECT_NEAR(Reach95(10), 2.228, 0.001);
  for (const double degrees : {1.0, 2.5, 30.0, 1e6})
    EXPECT_NEAR(ChanceAbove(Reach95(degrees), degrees), 0.025, 1e-9);
}

TEST(Distributions, ChanceOfAtLeastAddsUpTheTerms) {
  EXPECT_NEAR(ChanceOfAtLeast(2, 2, 0.5), 0.25, 1e-12);
  EXPECT_NEAR(ChanceOfAtLeast(1, 10, 0.1), 1 - std::pow(0.9, 10), 1e-12);
  EXPECT_NEAR(ChanceOfAtLeast(9, 10, 0.5), 11.0 / 1024, 1e-12);
  EXPECT_EQ(ChanceOfAtLeast(1, 10, 0), 0);
}

}  // namespace
}  // namespace gpuprobe::analysis
