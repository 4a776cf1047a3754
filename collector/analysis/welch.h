// Whether two series of measurements differ: Welch's t-test.
//
// Separate because it is statistics alone. B. L. Welch, "The generalization of Student's problem when several
// different population variances are involved", Biometrika 34 (1947); degrees of freedom after Satterthwaite.
// Effect size: Cohen's d with the root mean square of both standard deviations.
#pragma once

#include <cstdint>
#include <optional>

namespace gpuprobe::analysis {

struct Sample {
  uint64_t count = 0;
  double mean = 0;
  double std = 0;  // n - 1
};

// All in the unit of the samples but p_value and effect_size, which have none.
struct WelchResult {
  double difference = 0;  // mean of b - mean of a
  double low = 0;         // 95 % interval of the difference
  double high = 0;
  double p_value = 1;  // two-sided
  double degrees = 0;
  double effect_size = 0;
};

// nullopt when either has fewer than 2 values. Two series without any spread differ for certain or not at
// all: p_value 0 or 1, an interval without width, effect size 0.
std::optional<WelchResult> Welch(const Sample& a, const Sample& b);

}  // namespace gpuprobe::analysis
