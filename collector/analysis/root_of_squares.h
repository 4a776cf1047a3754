// The length of two independent errors taken together. Not std::hypot: linked with glibc 2.35 or newer, it
// does not start under an older one.
#pragma once

#include <cmath>

namespace gpuprobe::analysis {

inline double RootOfSquares(double a, double b) { return std::sqrt(a * a + b * b); }

}  // namespace gpuprobe::analysis
