#include "collector/analysis/comparison/welch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "collector/analysis/distributions.h"

namespace gpuprobe::analysis {
namespace {

double EffectiveOf(const Sample& s) {
  const auto count = static_cast<double>(s.count);
  return s.effective > 0 ? std::min(s.effective, count) : count;
}

double DegreesOf(const Sample& s) {
  return std::max(s.degrees > 0 ? s.degrees : static_cast<double>(s.count) - 1, 1.0);
}

struct Correlation {
  double tau = 1;    // integrated autocorrelation time: 1 + 2 x the sum of the correlations at all distances
  double reach = 0;  // largest distance in that sum
};

Correlation CorrelationOf(std::span<const double> values, double mean) {
  const size_t n = values.size();
  std::vector<double> off(n);
  std::transform(values.begin(), values.end(), off.begin(), [mean](double v) { return v - mean; });
  const double squares = std::inner_product(off.begin(), off.end(), off.begin(), 0.0);
  // Without spread, or so little that it is rounding, there is nothing to correlate.
  const double rounding = static_cast<double>(n) * mean * mean * std::numeric_limits<double>::epsilon();
  if (squares <= rounding * std::numeric_limits<double>::epsilon()) return {};
  const auto correlation = [&](size_t distance) {
    return std::inner_product(off.begin() + static_cast<ptrdiff_t>(distance), off.end(), off.begin(), 0.0) /
           squares;
  };
  Correlation c{.tau = -1};
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i + 1 < n / 2; i += 2) {
    // Sums of neighbours fall monotonically to zero; beyond is noise.
    least = std::min(least, correlation(i) + correlation(i + 1));
    if (least <= 0) break;
    c.tau += 2 * least;
    c.reach = static_cast<double>(i) + 1;
  }
  return c.tau > 1 ? c : Correlation{};
}

WelchResult ResultOf(double difference, double variance, double degrees, double spread) {
  WelchResult w{.difference = difference, .low = difference, .high = difference, .degrees = degrees};
  if (variance <= 0) {
    w.p_value = difference == 0 ? 1 : 0;
    return w;
  }
  const double error = std::sqrt(variance);
  w.p_value = 2 * ChanceAbove(std::abs(difference) / error, degrees);
  const double reach = Reach95(degrees) * error;
  w.low = difference - reach;
  w.high = difference + reach;
  w.effect_size = spread > 0 ? difference / spread : 0;
  return w;
}

double SpreadOf(const Sample& a, const Sample& b) { return std::sqrt((a.std * a.std + b.std * b.std) / 2); }

}  // namespace

Sample SampleOf(std::span<const double> values) {
  Sample s{.count = values.size()};
  if (values.empty()) return s;
  const auto n = static_cast<double>(values.size());
  s.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.effective = n;
  if (values.size() < 2) return s;
  double lost = 1;  // of the values, to the mean
  if (values.size() >= kLeastCorrelated) {
    const Correlation c = CorrelationOf(values, s.mean);
    // Values are correlated with their own mean, so that each correlation is tau / n too small, and the
    // squares are so, too.
    constexpr double kMostHidden = 0.75;
    const double tau = std::min(c.tau / (1 - std::min(c.tau > 1 ? 2 * c.tau / n : 0.0, kMostHidden)), n / 2);
    s.effective = n / tau;
    // As of a variance that is a sum over so many distances (M. S. Bartlett, 1950).
    if (c.reach > 0) s.degrees = std::max(n / (2 * c.reach + 1), 1.0);
    lost = tau;
  }
  s.std = std::sqrt(squares / (n - lost));
  return s;
}

std::optional<WelchResult> Welch(const Sample& a, const Sample& b) {
  if (a.count < 2 || b.count < 2) return std::nullopt;
  const double n_a = EffectiveOf(a);
  const double n_b = EffectiveOf(b);
  const double share_a = a.std * a.std / n_a;
  const double share_b = b.std * b.std / n_b;
  const double variance = share_a + share_b;
  const double degrees =
      variance > 0
          ? variance * variance / (share_a * share_a / DegreesOf(a) + share_b * share_b / DegreesOf(b))
          : n_a + n_b - 2;
  return ResultOf(b.mean - a.mean, variance, degrees, SpreadOf(a, b));
}

std::optional<WelchResult> Paired(const Sample& differences, const Sample& a, const Sample& b) {
  if (differences.count < 2) return std::nullopt;
  const double n = EffectiveOf(differences);
  return ResultOf(differences.mean, differences.std * differences.std / n, DegreesOf(differences),
                  SpreadOf(a, b));
}

std::vector<double> HolmAdjusted(std::span<const WeightedChance> chances) {
  std::vector<size_t> order(chances.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto relative = [&](size_t i) { return chances[i].p_value / chances[i].weight; };
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return relative(x) < relative(y); });
  double weights_left = 0;
  for (const WeightedChance& each : chances) weights_left += each.weight;
  std::vector<double> adjusted(chances.size());
  double least = 0;
  for (const size_t i : order) {
    least = std::max(least, std::min(1.0, relative(i) * weights_left));
    weights_left -= chances[i].weight;
    adjusted[i] = least;
  }
  return adjusted;
}

}  // namespace gpuprobe::analysis
