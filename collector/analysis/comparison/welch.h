// Whether two series of measurements differ: Welch's t-test, or Student's on the differences of pairs.
//
// B. L. Welch, "The generalization of Student's problem when several different population variances are
// involved", Biometrika 34 (1947); degrees of freedom after Satterthwaite. Effect size: Cohen's d with the
// root mean square of both standard deviations.
//
// Values that follow each other are seldom independent: a device warms up, a neighbour comes and goes. Each
// sample therefore says how many independent values it is worth, and the tests count those.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gpuprobe::analysis {

struct Sample {
  uint64_t count = 0;
  double mean = 0;
  double std = 0;        // n - 1
  double effective = 0;  // of `count`, independent values; 0: all of them
  double degrees = 0;    // of freedom, of `std`; 0: count - 1
};

// `values` in time order. `effective`: count / tau, with the integrated autocorrelation time tau by Geyer's
// initial monotone sequence ("Practical Markov chain Monte Carlo", Statistical Science 7, 1992), raised by
// what the unknown mean hides of it; `std` is corrected in the same way. With fewer than kLeastCorrelated
// values: count.
inline constexpr size_t kLeastCorrelated = 8;
Sample SampleOf(std::span<const double> values);

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
// The same for the differences b - a of pairs; `a`, `b`: for the effect size.
std::optional<WelchResult> Paired(const Sample& differences, const Sample& a, const Sample& b);

// Adjusts each p-value for all of them (S. Holm, Scandinavian Journal of Statistics 6, 1979): if those below
// L are taken for differences, the chance of even one false difference is at most L. A comparison may use up
// the share of L that its weight has of all weights.
struct WeightedChance {
  double p_value = 1;
  double weight = 1;
};
std::vector<double> HolmAdjusted(std::span<const WeightedChance> chances);

}  // namespace gpuprobe::analysis
