#include "collector/analysis/welch.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>

namespace gpuprobe::analysis {

std::optional<WelchResult> Welch(const Sample& a, const Sample& b) {
  if (a.count < 2 || b.count < 2) return std::nullopt;
  const auto n_a = static_cast<double>(a.count);
  const auto n_b = static_cast<double>(b.count);
  const double share_a = a.std * a.std / n_a;
  const double share_b = b.std * b.std / n_b;
  const double variance = share_a + share_b;
  WelchResult w;
  w.difference = b.mean - a.mean;
  if (variance <= 0) {
    w.low = w.high = w.difference;
    w.p_value = w.difference == 0 ? 1 : 0;
    w.degrees = n_a + n_b - 2;
    return w;
  }
  w.degrees = variance * variance / (share_a * share_a / (n_a - 1) + share_b * share_b / (n_b - 1));
  const boost::math::students_t distribution(w.degrees);
  const double error = std::sqrt(variance);
  w.p_value = 2 * boost::math::cdf(boost::math::complement(distribution, std::abs(w.difference) / error));
  constexpr double kTail = 0.025;
  const double reach = boost::math::quantile(boost::math::complement(distribution, kTail)) * error;
  w.low = w.difference - reach;
  w.high = w.difference + reach;
  w.effect_size = w.difference / std::sqrt((a.std * a.std + b.std * b.std) / 2);
  return w;
}

}  // namespace gpuprobe::analysis
