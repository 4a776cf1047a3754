// Estimates how far the ranks' clocks are apart, from the moments at which they left the same collectives.
//
// Separate because everything that compares times of different ranks or hosts depends on it. All ranks leave
// an all-reduce at nearly the same time; a robust line (Theil-Sen over medians) through these differences
// gives offset and drift. Where two ranks share no collective, their sends and receives serve. Ranks that
// share no collective with the reference are reached through ranks that do; ranks of one host have one clock.
// Clock steps that the probe saw are taken out first. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "collector/analysis/report/clocks.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

struct ClockLine {
  double ahead_ns = 0;  // at `origin_ns`
  double drift = 0;     // per nanosecond
  double residual_ns = 0;
};
// `windows` must not be empty. Without a span to speak of the drift is 0.
ClockLine FitClock(const std::vector<model::ClockLink::Window>& windows, uint64_t origin_ns);

// The lines of the processes whose clocks could be aligned, by their place in the job. A time of such a
// process, forward steps of its clock taken out, is `ahead_ns + drift * (time - origin_ns)` later than the
// reference rank's clock said.
struct ClockLines {
  uint64_t origin_ns = 0;
  std::map<uint32_t, ClockLine> lines;
};
ClockLines ClockLinesOf(const model::JobModel& job);

ClockReport ClockReportOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
