#include "collector/analysis/trend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gpuprobe::analysis {

double SlopeOf(const std::vector<double>& values) {
  std::vector<double> slopes;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i + 1; j < values.size(); ++j)
      slopes.push_back((values[j] - values[i]) / static_cast<double>(j - i));
  }
  const auto middle = slopes.begin() + static_cast<ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

double RisingScore(const std::vector<double>& values) {
  double s = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i + 1; j < values.size(); ++j)
      s += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
  }
  const auto n = static_cast<double>(values.size());
  const double variance = n * (n - 1) * (2 * n + 5) / 18;
  return s > 0 ? (s - 1) / std::sqrt(variance) : 0;
}

}  // namespace gpuprobe::analysis
