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
  int64_t offset_ns = 0;
  std::optional<double> drift_ppm;
  double residual_ns = 0;
  int64_t stepped_ns = 0;
  uint64_t samples = 0;

  static constexpr void Declare(auto& fields) {
    fields("rank", &ClockOffset::rank, "whose clock; `null` if its process has no rank");
    fields("host", &ClockOffset::host, "its host");
    fields("offset_ns", &ClockOffset::offset_ns,
           "ahead of the reference at the beginning, with `stepped_ns` taken out");
    fields("drift_ppm", &ClockOffset::drift_ppm,
           "how fast it gains (below 0: loses); `null` if there is too little to tell");
    fields("residual_ns", &ClockOffset::residual_ns,
           "robust standard deviation about the line of offset and drift");
    fields("stepped_ns", &ClockOffset::stepped_ns, "by how much the clock was set in all");
    fields("samples", &ClockOffset::samples, "collectives that it was compared in");
    fields.Unwritten(&ClockOffset::label);
  }
};

struct ClockReport {
  std::string reference;
  std::vector<ClockOffset> ranks;

  static constexpr void Declare(auto& fields) {
    fields("reference", &ClockReport::reference,
           "the rank that the others are compared with; `null`: nothing could be aligned")
        .NullIfZero();
    fields("ranks", &ClockReport::ranks, "the ranks' clocks");
  }
};

}  // namespace gpuprobe::analysis
