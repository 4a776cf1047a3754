// The ranks' clocks against that of a reference rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

// One rank's clock against the reference rank's.
struct ClockOffset {
  std::string label;
  std::optional<int> rank;
  std::string host;
  int64_t offset_ns = 0;            // ahead of the reference at the beginning, steps taken out
  std::optional<double> drift_ppm;  // positive: it gains; absent: the run is too short
  double residual_ns = 0;           // robust standard deviation about that line
  int64_t stepped_ns = 0;           // by how much it was set in all
  uint64_t samples = 0;
};

struct ClockReport {
  std::string reference;  // label of the rank, empty: nothing could be aligned
  std::vector<ClockOffset> ranks;
};

}  // namespace gpuprobe::analysis
