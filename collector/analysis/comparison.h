// Two runs held against each other: what became faster or slower, and whether that is more than chance.
//
// Separate from either report because it only reads both. A step's time in a run is one sample a step: ranks
// wait for each other, so their times are not independent, and the number of steps counts, not that of steps
// times ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/comparison_trust.h"
#include "collector/analysis/report.h"
#include "collector/analysis/welch.h"

namespace gpuprobe::analysis {

// Level of significance; over the parts of a step it is divided after Holm (S. Holm, Scandinavian Journal of
// Statistics 6, 1979).
inline constexpr double kSignificance = 0.05;
// A kernel or collective is listed when its difference is beyond chance, and as much of its own time, and of
// a step.
inline constexpr double kLeastOwnChange = 0.02;
inline constexpr double kLeastStepChange = 0.001;
// Of a step: below, a difference that is beyond chance is called small, however regular steps are.
inline constexpr double kSmallChange = 0.01;

struct ComparedPart {
  std::string name;  // "total", "compute" ...
  Sample a;
  Sample b;
  std::optional<WelchResult> test;  // absent with fewer than two steps
  bool significant = false;
};

// A kernel or a series of collectives; of a rank and step, mean over the ranks, the warm-up left out. Where a
// run has no steps: of a rank and the whole run, with what starts it.
struct ComparedWork {
  struct Side {
    double calls = 0;
    double mean_ns = 0;  // of a call; of a collective the transfer, without waiting; 0 without calls
    std::optional<double> wait_ns;  // of a collective's call
    // What is compared: of a kernel its time in each step, of a collective each transfer.
    Sample sample;
  };
  std::string name;
  Side a;
  Side b;
  double p_value = 1;    // before Holm
  double change_ns = 0;  // of a rank and step (and run)
};

struct ComparedCondition {
  std::string what;
  std::string a;
  std::string b;
};

struct Comparison {
  bool per_step = false;              // both runs have steps
  std::vector<ComparedPart> parts;    // total first; empty unless per_step
  std::vector<ComparedWork> kernels;  // beyond chance, largest change first; without NCCL's
  std::vector<ComparedWork> collectives;
  std::vector<ComparedCondition> conditions;
  // What speaks against each run's numbers, and findings that only one of them has.
  std::vector<std::string> doubts_a;
  std::vector<std::string> doubts_b;
  std::vector<ComparedFinding> findings;
  std::string verdict;  // a sentence
};

// Reports with all kernels (ReportInput::all_kernels). Pure.
Comparison Compare(const Report& a, const Report& b);

}  // namespace gpuprobe::analysis
