// Compares two runs: what became faster or slower, on which rank, in which kernel or collective, and whether
// that is more than chance.
//
// The unit is the step of the job (run_series.h). Each part of a step is compared as the mean over the ranks
// and on each rank; a rank that changed is named, and so is one that changed more than the others.
//
// Example: eight ranks compute 14.2 ms a step, and in B rank 5 computes 15.3 ms. The mean rises by 0.14 ms,
// on rank 5 compute rises by 1.1 ms and on the others by nothing: "rank 5" is the change. Its waiting falls,
// the others' rises, and the step is 1.1 ms longer: these follow from it.
//
// Many quantities are compared at once, so each p-value is adjusted (Holm): in two runs that differ by
// nothing but chance, the chance of even one false difference is kSignificance. That excludes differences
// between runs but not within one (another node, a warmer room): two runs cannot tell these from a change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/comparison/comparison_trust.h"
#include "collector/analysis/comparison/run_series.h"
#include "collector/analysis/comparison/welch.h"
#include "collector/model/steps/step_blocks.h"

namespace gpuprobe::analysis {

// Level of significance, of all comparisons together.
inline constexpr double kSignificance = 0.05;
// A kernel, collective or rank is named when its difference is beyond chance and at least this share of its
// own time, and of a step: below, nobody would act on it.
inline constexpr double kLeastOwnChange = 0.005;
inline constexpr double kLeastStepChange = 0.001;
// Below this share of a step, a difference beyond chance is called small, however regular steps are.
inline constexpr double kSmallChange = 0.01;
// Steps of both runs are compared pair by pair where their lengths correlate beyond this chance (as with a
// data set in the same order), and there are this many pairs.
inline constexpr double kPairedChance = 0.001;
inline constexpr size_t kLeastPairs = 10;

// Two samples and what the test says of them.
struct Compared {
  Sample a;
  Sample b;
  std::optional<WelchResult> test;  // absent with fewer than two steps
  double adjusted_p = 1;            // after Holm, among all comparisons
  bool significant = false;         // adjusted_p < kSignificance
};

// "total", "exposed comm", "idle: input"
const char* PartName(model::StepPart part);

struct ComparedPart : Compared {
  model::StepPart part = model::StepPart::kTotal;
};

// A part of the step on one rank.
struct ComparedRank : Compared {
  int rank = 0;
  model::StepPart part = model::StepPart::kTotal;
  // Against the median of the ranks' changes: whether this rank changed otherwise than the others.
  double beyond_others_ns = 0;
  bool odd = false;  // that is beyond chance
};

// A kernel or a series of collectives; of a rank and step, mean over the ranks, the warm-up left out. Where a
// run has no steps: of a rank and the whole run, with what starts it.
struct ComparedWork {
  struct Side {
    double calls = 0;
    double mean_ns = 0;  // of a call; of a collective the transfer, without waiting; 0 without calls
    std::optional<double> wait_ns;  // of a collective's call
    // The values compared: a kernel's time in each step, or a collective's single transfers.
    Sample sample;
  };
  std::string name;
  std::vector<int> members;  // of a collective that changed on one communicator of several: its ranks
  Side a;
  Side b;
  double p_value = 1;  // before Holm
  double adjusted_p = 1;
  double change_ns = 0;  // of a rank and step (and run)
  double low_ns = 0;     // 95 % interval of it, where times were compared
  double high_ns = 0;
};

// A difference in words: who or what changed, by how much, and what follows from it.
struct Change {
  enum class Subject { kRank, kAllRanks, kKernel, kCollective, kWaiting };
  std::string statement = {};
  std::string evidence = {};  // may be empty
  Subject subject = Subject::kRank;
  std::optional<model::StepPart> part = std::nullopt;
  std::string name = {};  // of the kernel or collective
  std::vector<int> ranks = {};
  double change_ns = 0;  // of a step
  double low_ns = 0;     // 95 % interval
  double high_ns = 0;
  double adjusted_p = 1;
};

struct Comparison {
  bool per_step = false;              // both runs have steps
  bool paired = false;                // steps of the same number were compared with each other
  uint64_t block_steps = 1;           // steps that are one observation
  size_t comparisons = 0;             // that the level holds for
  std::vector<Change> changes;        // what to read first; causes before what follows from them
  std::vector<ComparedPart> parts;    // total first; empty unless per_step
  std::vector<ComparedRank> ranks;    // significant ones, largest change first
  std::vector<ComparedWork> kernels;  // beyond chance, largest change first; without NCCL's
  std::vector<ComparedWork> collectives;
  std::vector<ComparedCondition> conditions;
  std::vector<std::string> limits;  // what cannot be compared, and why; sentences
  // Doubts about each run's numbers, and findings that only one of them has.
  std::vector<std::string> doubts_a;
  std::vector<std::string> doubts_b;
  std::vector<ComparedFinding> findings;
  std::string verdict;  // a sentence
};

// Reports with all kernels (ReportInput::all_kernels). Pure.
Comparison Compare(const Run& a, const Run& b);

}  // namespace gpuprobe::analysis
