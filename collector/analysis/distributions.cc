#include "collector/analysis/distributions.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>

namespace gpuprobe::analysis {

using boost::math::complement;

double ChanceAbove(double t, double degrees) {
  return boost::math::cdf(complement(boost::math::students_t(degrees), t));
}

double Reach95(double degrees) {
  constexpr double kTail = 0.025;
  return boost::math::quantile(complement(boost::math::students_t(degrees), kTail));
}

double ChanceOfAtLeast(uint64_t successes, uint64_t tries, double chance_of_each) {
  const boost::math::binomial distribution(static_cast<double>(tries), chance_of_each);
  return boost::math::cdf(complement(distribution, static_cast<double>(successes) - 1));
}

}  // namespace gpuprobe::analysis
