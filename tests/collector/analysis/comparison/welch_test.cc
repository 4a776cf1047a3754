#include "collector/analysis/comparison/welch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace gpuprobe::analysis {
namespace {

// The first example of Wikipedia's "Welch's t-test": t = -2.46, 25.0 degrees of freedom, P = 0.021.
TEST(Welch, AgreesWithAPublishedExample) {
  const auto w = Welch({.count = 15, .mean = 20.82, .std = std::sqrt(7.84)},
                       {.count = 15, .mean = 22.99, .std = std::sqrt(3.81)});
  ASSERT_TRUE(w.has_value());
  EXPECT_NEAR(w->difference, 2.17, 1e-9);
  EXPECT_NEAR(w->degrees, 25.0, 0.1);
  EXPECT_NEAR(w->p_value, 0.021, 0.0005);
  // t(0.975; 25) = 2.0595.
  EXPECT_NEAR(w->high - w->difference, 2.0595 * std::sqrt(7.84 / 15 + 3.81 / 15), 0.01);
  EXPECT_NEAR(w->effect_size, 2.17 / std::sqrt((7.84 + 3.81) / 2), 1e-9);
}

TEST(Welch, IsSymmetric) {
  const Sample a{.count = 20, .mean = 10, .std = 1};
  const Sample b{.count = 5, .mean = 11, .std = 3};
  EXPECT_DOUBLE_EQ(Welch(a, b)->p_value, Welch(b, a)->p_value);
  EXPECT_DOUBLE_EQ(Welch(a, b)->low, -Welch(b, a)->high);
}

TEST(Welch, WithoutSpreadIsCertain) {
  const Sample a{.count = 5, .mean = 10, .std = 0};
  EXPECT_EQ(Welch(a, a)->p_value, 1);
  EXPECT_EQ(Welch(a, {.count = 5, .mean = 11, .std = 0})->p_value, 0);
}

TEST(Welch, NeedsTwoValuesOfEach) {
  EXPECT_FALSE(Welch({.count = 1, .mean = 1, .std = 0}, {.count = 9, .mean = 1, .std = 0}).has_value());
  EXPECT_FALSE(Welch({.count = 9, .mean = 1, .std = 0}, {}).has_value());
}

// First-order autoregression: each value is phi of the one before, and noise.
double FalseShare(double phi, double level) {
  constexpr int kPairs = 4000;
  std::mt19937_64 engine(7);
  std::normal_distribution<double> noise;
  int found = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    Sample samples[2];
    for (Sample& sample : samples) {
      std::vector<double> values(60);
      double value = noise(engine) / std::sqrt(1 - phi * phi);
      for (double& v : values) v = 100 + (value = phi * value + noise(engine));
      sample = SampleOf(values);
    }
    found += Welch(samples[0], samples[1])->p_value < level ? 1 : 0;
  }
  return static_cast<double>(found) / kPairs;
}

TEST(Welch, KeepsItsLevelWhereStepsDependOnEachOther) {
  for (const double phi : {0.0, 0.3, 0.6}) {
    EXPECT_LT(FalseShare(phi, 0.05), 0.055) << phi;
    EXPECT_LT(FalseShare(phi, 0.001), 0.003) << phi;
  }
}

TEST(Welch, IndependentValuesCountAsSuch) {
  std::mt19937_64 engine(7);
  std::normal_distribution<double> noise;
  std::vector<double> values(100);
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    for (double& v : values) v = noise(engine);
    sum += SampleOf(values).effective / 100;
  }
  EXPECT_GT(sum, 80);
}

TEST(Holm, TheLeastIsJudgedAmongAllAndTheNextAmongTheRest) {
  EXPECT_THAT(HolmAdjusted(std::vector<WeightedChance>{{0.03}, {0.001}, {0.02}}),
              ::testing::ElementsAre(::testing::DoubleEq(0.04), ::testing::DoubleEq(0.003),
                                     ::testing::DoubleEq(0.04)));
}

// Three comparisons, of which the first has half of the error: it costs it a factor of two, however many the
// others are, and once it is a difference the others are judged among themselves.
TEST(Holm, AComparisonHasTheShareOfTheErrorThatItsWeightHas) {
  EXPECT_THAT(
      HolmAdjusted(std::vector<WeightedChance>{{0.02, 2}, {0.015}, {0.6}}),
      ::testing::ElementsAre(::testing::DoubleEq(0.04), ::testing::DoubleEq(0.04), ::testing::DoubleEq(0.6)));
  EXPECT_THAT(HolmAdjusted(std::vector<WeightedChance>{{0.02, 2}, {0.001}, {0.6}}),
              ::testing::ElementsAre(::testing::DoubleEq(0.03), ::testing::DoubleEq(0.004),
                                     ::testing::DoubleEq(0.6)));
}

}  // namespace
}  // namespace gpuprobe::analysis
