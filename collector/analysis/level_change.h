// Whether a series of times has two levels: one up to some moment, another from then on.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace gpuprobe::analysis {

// Where the series becomes longer or shorter by `ratio`, once, and stays so: the place of the first value
// afterwards. nullopt: it does not.
struct LevelChange {
  size_t place = 0;
  double before = 0;  // medians
  double after = 0;
};
std::optional<LevelChange> LevelChangeOf(const std::vector<double>& values, double ratio);

}  // namespace gpuprobe::analysis
