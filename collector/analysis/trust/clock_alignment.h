// Estimates how far the ranks' clocks are apart, from the moments at which they left the same collectives.
//
// Separate because everything that compares times of different ranks or hosts depends on it. All ranks leave
// an all-reduce at nearly the same time; a robust line (Theil-Sen over medians) through these differences
// gives offset and drift. Where two ranks share no collective, their sends and receives serve. Ranks that
// share no collective with the reference are reached through ranks that do; ranks of one host have one clock.
// Clock steps that the probe saw are taken out first. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/records/process_clock.h"
#include "collector/records/row_clock.h"
#include "collector/report/clocks.h"

namespace gpuprobe::analysis {

struct ClockLine {
  double ahead_ns = 0;  // at `origin_ns`
  double drift = 0;     // per nanosecond
  double residual_ns = 0;
};
// `windows` must not be empty. Without a span to speak of the drift is 0.
ClockLine FitClock(const std::vector<model::ClockLink::Window>& windows, uint64_t origin_ns);

// Maps times of a process's line onto the reference rank's clock.
//
// Two corrections: where the process's clock was set forward by d, later times are shifted back by d, and
// offset and drift against the reference rank are taken out.
class AlignedClock {
 public:
  // `clock`: the process's, after all of its batches. It outlives this.
  AlignedClock(const model::ProcessClock& clock, ClockLine line, uint64_t origin_ns)
      : clock_(&clock), line_(line), origin_ns_(origin_ns) {}

  const model::ProcessClock& process() const { return *clock_; }
  uint64_t Align(uint64_t line_ns) const;
  template <typename Record>
  void AlignTimes(Record& record) const {
    model::MapTimes(record, [this](uint64_t line_ns) { return Align(line_ns); });
  }

 private:
  const model::ProcessClock* clock_;
  ClockLine line_;  // all zero if the clock could not be aligned
  uint64_t origin_ns_;
};
// Of each process of the job, in order.
std::vector<AlignedClock> AlignedClocksOf(const model::JobModel& job);

ClockReport ClockReportOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
