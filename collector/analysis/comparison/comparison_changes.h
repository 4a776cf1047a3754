// Words the changes between two runs: which rank, kernel, or collective, by how much, and what follows.
#pragma once

#include <string>
#include <vector>

#include "collector/analysis/comparison/comparison.h"

namespace gpuprobe::analysis {

// `ranks`: all that were compared, part by part; empty where ranks cannot be compared. `c`: with parts,
// kernels and collectives. `step_ns`: that of the slower run.
std::vector<Change> ChangesOf(const Run& a, const Run& b, const Comparison& c,
                              const std::vector<ComparedRank>& ranks, double step_ns);

// "p < 0.001", "p = 0.012"
std::string ChanceText(double p);

}  // namespace gpuprobe::analysis
