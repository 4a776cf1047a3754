// Whether values that follow each other rise, and how fast, without being misled by single outliers.
#pragma once

#include <vector>

namespace gpuprobe::analysis {

// Theil-Sen: the median of the slopes of all pairs (P. K. Sen, JASA 63, 1968). REQUIRES: two values or more.
double SlopeOf(const std::vector<double>& values);
// Mann-Kendall's z without correction for ties, which would only raise it (H. B. Mann, Econometrica 13,
// 1945); 0 if they do not rise.
double RisingScore(const std::vector<double>& values);

}  // namespace gpuprobe::analysis
