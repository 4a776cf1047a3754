// Maps a process's wall-clock times onto the reference rank's clock.
//
// Three corrections, in this order. If the clock was set back by d, later times are shifted forward by d
// (ContinuousClock). If it was set forward by d, later times are shifted back by d. Then offset and drift
// against the reference rank are taken out (clock_alignment.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collector/analysis/clock_alignment.h"
#include "collector/model/clock/continuous_clock.h"
#include "collector/model/clock/row_clock.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::timeline {

// How a process's clock was set forward. Filled batch by batch, in a first pass over the log.
class ForwardSteps {
 public:
  void Note(const v1::Batch& batch);
  // By how much it had been set forward by then, in all.
  uint64_t Before(uint64_t line_ns) const;
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    uint64_t from_ns = 0;  // on the line: times from here on are after it
    uint64_t total_ns = 0;
  };
  std::vector<Step> steps_;
  bool known_ = false;
  int64_t offset_ns_ = 0;
  uint64_t set_back_ns_ = 0;
  uint64_t last_clock_ns_ = 0;
};

class ProcessClock {
 public:
  // `device_ahead_ns`: by how much CUPTI's clock was ahead of the process's.
  ProcessClock(analysis::ClockLine line, uint64_t origin_ns, ForwardSteps forward, int64_t device_ahead_ns)
      : line_(line), origin_ns_(origin_ns), forward_(std::move(forward)) {
    continuous_.SetDeviceAhead(device_ahead_ns);
  }

  // Before the records of each batch. `device_until_ns`: latest end of any work on the device, on the line.
  void BeginBatch(const v1::Batch& batch, uint64_t device_until_ns);

  // From the process's clock to its line; records in their order in the batch. `stream`: of a record of the
  // device's, where it ran.
  template <typename Record>
  void MoveToLine(uint32_t stream, Record& record) {
    if (continuous_.moved()) model::MoveToLine(continuous_, stream, record);
  }

  // From the process's line, on which steps and findings are, too, to the reference rank's clock.
  uint64_t Align(uint64_t line_ns) const;
  template <typename Record>
  void AlignTimes(Record& record) const {
    model::MapTimes(record, [this](uint64_t line_ns) { return Align(line_ns); });
  }

 private:
  analysis::ClockLine line_;
  uint64_t origin_ns_;
  ForwardSteps forward_;
  model::ContinuousClock continuous_;
  bool known_ = false;
  int64_t offset_ns_ = 0;
  uint64_t last_clock_ns_ = 0;  // on the line
};

}  // namespace gpuprobe::timeline
