// Chances, and the distributions that they come from.
#pragma once

#include <cstdint>

namespace gpuprobe::analysis {

// That a value of Student's distribution is above t.
double ChanceAbove(double t, double degrees);
// 95 % of Student's distribution lies within this of zero.
double Reach95(double degrees);
// That so many of the tries succeed, or more.
double ChanceOfAtLeast(uint64_t successes, uint64_t tries, double chance_of_each);

}  // namespace gpuprobe::analysis
