// A process's clock: notices from batch to batch when it was set, and puts the times of records on one line.
//
// Set forward, durations that contain the step are corrected for it. Set back, later times are shifted
// forward (clock/continuous_clock.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collector/model/clock/clock_steps.h"
#include "collector/model/clock/continuous_clock.h"
#include "collector/model/clock/device_clock.h"
#include "collector/model/process/process_totals.h"
#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class ProcessClock {
 public:
  explicit ProcessClock(ProcessTotals& totals) : totals_(totals) {}

  // Before the batch's records. `last_device_end_ns`: the latest end on the device so far.
  // `start`: both clocks when the process said hello.
  void BeginBatch(const v1::Batch& batch, const v1::ClockPair& start, uint64_t last_device_end_ns);
  // Before the records of the device, whose durations are corrected.
  void BeginDeviceRecords(const v1::Batch& batch);
  // A clock step forward, to be handed to those who hold times.
  struct Forward {
    uint64_t by_ns = 0;  // 0: there was none
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
  };
  // After the batch's records.
  Forward EndBatch(const v1::Batch& batch);

  ContinuousClock& line() { return line_; }
  // The length of a record without the steps of the clock in it.
  uint64_t Length(uint64_t start_ns, uint64_t end_ns) const { return steps_.Length(start_ns, end_ns); }
  // When the batch was sealed, on the line.
  uint64_t Now(const v1::Batch& batch) { return line_.Now(batch.clock().realtime_ns()); }
  uint64_t Now(uint64_t realtime_ns) { return line_.Now(realtime_ns); }
  // By how much the clock was behind the line at that time of the line.
  uint64_t SetBackAt(uint64_t time_ns) const { return line_.BackAt(time_ns); }
  // By how much it had been stepped forward when the records of this batch, from 0, were taken.
  int64_t ShiftIn(uint64_t batch) const;
  // By how much CUPTI's clock is ahead of the process's. The times of its records are corrected by it.
  int64_t device_ahead_ns() const { return device_.ahead_ns(); }

 private:
  // By how much the clock was stepped before this batch was sealed, and since the one before.
  int64_t StepOf(const v1::Batch& batch) const;

  ProcessTotals& totals_;
  int64_t offset_ns_ = 0;  // of REALTIME from MONOTONIC, at the last batch
  bool known_ = false;
  ClockSteps steps_;
  ContinuousClock line_;
  DeviceClock device_;
  std::vector<std::pair<uint64_t, int64_t>> shifts_;  // from which batch on, by how much in all

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(totals_), offset_ns_, known_, steps_, line_, device_, shifts_);
  }
};

}  // namespace gpuprobe::model
