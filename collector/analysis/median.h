// Medians of a few values, and the factor that makes their deviations comparable with a standard deviation.
//
// Example: Median({1, 2, 9, 10}) is 5.5, the mean of both middle values; UpperMedian gives 9, and
// LowerMedian 2, values that occurred.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace gpuprobe::analysis {

// Median absolute deviation times this estimates the standard deviation of a normal distribution.
inline constexpr double kMadToSigma = 1.4826;

// REQUIRES: values is not empty.
inline double UpperMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// REQUIRES: values is not empty.
inline double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// 0 without values.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace gpuprobe::analysis
