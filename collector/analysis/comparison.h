// Two runs held against each other: what became faster or slower, and whether that is more than chance.
//
// Separate from either report because it only reads both. A step's time in a run is one sample a step: ranks
// wait for each other, so their times are not independent, and the number of steps counts, not that of steps
// times ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/report.h"
#include "collector/analysis/welch.h"

namespace gpuprobe::analysis {

// Level of significance; over the parts of a step it is divided after Holm (S. Holm, Scandinavian Journal of
// Statistics 6, 1979).
inline constexpr double kSignificance = 0.05;
// A kernel or collective is listed when it differs by as much of its own time, and by as much of a step.
inline constexpr double kLeastOwnChange = 0.02;
inline constexpr double kLeastStepChange = 0.001;

struct ComparedPart {
  std::string name;  // "total", "compute" ...
  Sample a;
  Sample b;
  std::optional<WelchResult> test;  // absent with fewer than two steps
  bool significant = false;
};

// A kernel or a series of collectives.
struct ComparedWork {
  std::string name;
  double calls_per_step_a = 0;  // of all ranks; calls in all where a run has no steps
  double calls_per_step_b = 0;
  double mean_ns_a = 0;  // of a call; 0 without calls
  double mean_ns_b = 0;
  double change_ns_per_step = 0;  // of the ranks' mean; of all calls where a run has no steps
};

struct ComparedCondition {
  std::string what;
  std::string a;
  std::string b;
};

struct Comparison {
  bool per_step = false;              // both runs have steps
  std::vector<ComparedPart> parts;    // total first; empty unless per_step
  std::vector<ComparedWork> kernels;  // largest change first
  std::vector<ComparedWork> collectives;
  std::vector<ComparedCondition> conditions;
  std::string verdict;  // a sentence
};

// Reports with all kernels (ReportInput::all_kernels). Pure.
Comparison Compare(const Report& a, const Report& b);

}  // namespace gpuprobe::analysis
