#include "collector/analysis/welch.h"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace gpuprobe::analysis
