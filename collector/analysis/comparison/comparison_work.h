// Kernels and collectives of two runs, each compared with its counterpart.
#pragma once

#include <vector>

#include "collector/analysis/comparison/comparison.h"

namespace gpuprobe::analysis {

// Every kernel, and every kind of collective, of either run, with p_value but without adjusted_p. `ranks`:
// the runs have the same ones. A kind of collective on several communicators is an entry for all of them
// together and, with `ranks`, one for each with its members.
std::vector<ComparedWork> KernelsCompared(const Run& a, const Run& b, bool per_step, bool paired);
std::vector<ComparedWork> CollectivesCompared(const Run& a, const Run& b, bool per_step, bool ranks);

// Leaves what is beyond chance and worth naming, largest change first. `step_ns`: 0 if there are no steps.
// Where fewer than half of several communicators changed these stay, else the entry for all of them.
void KeepChanged(double step_ns, std::vector<ComparedWork>& work);

// Compares two series, block by block if `paired`.
struct SeriesTest {
  Sample a;
  Sample b;
  std::optional<WelchResult> test;
};
SeriesTest TestOf(const Series& a, const Series& b, bool paired);

}  // namespace gpuprobe::analysis
