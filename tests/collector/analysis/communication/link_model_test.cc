// The alpha-beta fit against lines that are known, and clocks against offsets that are.
#include "collector/analysis/communication/link_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "collector/analysis/trust/clock_alignment.h"

namespace gpuprobe::analysis {
namespace {

std::vector<TransferPoint> Line(double alpha_ns, double gbytes_per_s) {
  std::vector<TransferPoint> points;
  for (double bytes = 1024; bytes <= 1 << 30; bytes *= 4)
    points.push_back({.bus_bytes = bytes, .time_ns = alpha_ns + bytes / gbytes_per_s, .calls = 100});
  return points;
}

TEST(FitAlphaBeta, FindsALineOverSixOrdersOfMagnitude) {
  const AlphaBeta fit = FitAlphaBeta(Line(42'000, 350));
  EXPECT_NEAR(fit.alpha_ns, 42'000, 1);
  EXPECT_NEAR(1 / fit.ns_per_byte, 350, 0.01);
}

TEST(FitAlphaBeta, OneSizeThatStraysDoesNotBendIt) {
  std::vector<TransferPoint> points = Line(42'000, 350);
  points[5].time_ns *= 3;
  const AlphaBeta fit = FitAlphaBeta(points);
  EXPECT_NEAR(fit.alpha_ns, 42'000, 0.05 * 42'000);
  EXPECT_NEAR(1 / fit.ns_per_byte, 350, 0.05 * 350);
}

TEST(FitAlphaBeta, NoiseOfThreePercentMovesItByLessThanFive) {
  std::vector<TransferPoint> points = Line(42'000, 350);
  for (size_t i = 0; i < points.size(); ++i) points[i].time_ns *= i % 2 == 0 ? 1.03 : 0.97;
  const AlphaBeta fit = FitAlphaBeta(points);
  EXPECT_NEAR(fit.alpha_ns, 42'000, 0.05 * 42'000);
  EXPECT_NEAR(1 / fit.ns_per_byte, 350, 0.05 * 350);
}

TEST(FitAlphaBeta, TheErrorsHoldTheTruthAboutAsOftenAsTheySay) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.02);
  int alpha_held = 0;
  int beta_held = 0;
  constexpr int kFits = 500;
  for (int i = 0; i < kFits; ++i) {
    std::vector<TransferPoint> points = Line(42'000, 350);
    for (TransferPoint& p : points) p.time_ns *= noise(random);
    const AlphaBeta fit = FitAlphaBeta(points);
    EXPECT_GT(fit.alpha_error_ns, 0);
    alpha_held += std::abs(fit.alpha_ns - 42'000) <= 2 * fit.alpha_error_ns ? 1 : 0;
    beta_held += std::abs(fit.ns_per_byte - 1 / 350.0) <= 2 * fit.ns_per_byte_error ? 1 : 0;
  }
  // Two standard errors of a normal distribution: 95 %; of a t distribution with nine degrees of freedom 92
  // %.
  EXPECT_GE(alpha_held, kFits * 85 / 100);
  EXPECT_GE(beta_held, kFits * 85 / 100);
  EXPECT_LE(alpha_held, kFits * 99 / 100);
}

TEST(FitAlphaBeta, ALineWithoutNoiseHasNoError) {
  const AlphaBeta fit = FitAlphaBeta(Line(42'000, 350));
  EXPECT_LT(fit.alpha_error_ns, 1);
  EXPECT_LT(fit.ns_per_byte_error * 350, 1e-6);
}

TEST(ClockLink, WindowsStayBoundedAndTheLineIsFoundThroughStragglers) {
  constexpr int64_t kAhead = 5'000'000;
  constexpr double kDrift = 20e-6;
  constexpr uint64_t kOrigin = 1'700'000'000'000'000'000;
  model::ClockLink link;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t time_ns = i * 1'000'000;  // 100 s
    int64_t ahead = kAhead + static_cast<int64_t>(kDrift * static_cast<double>(time_ns));
    ahead += static_cast<int64_t>(i % 7) * 300 - 900;  // a microsecond of noise
    if (i % 10 == 0) ahead += 400'000;                 // a rank that was held up
    link.Add(kOrigin + time_ns, ahead);
  }
  EXPECT_LE(link.Windows().size(), model::ClockLink::kMaxWindows + 1);
  const ClockLine line = FitClock(link.Windows(), kOrigin);
  EXPECT_NEAR(line.ahead_ns, kAhead, 2'000);
  EXPECT_NEAR(line.drift * 1e6, 20, 0.1);
  EXPECT_LT(line.residual_ns, 3'000);
}

}  // namespace
}  // namespace gpuprobe::analysis
