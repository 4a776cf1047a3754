// A process's clock: notices from batch to batch when it was set, and puts the times of records on one line.
//
// If the clock is set forward, durations that contain the step are corrected. If it is set back, later times
// are shifted forward (continuous_clock.h). The model has one for each process as its batches come; who reads
// a log again has another one, which knows CUPTI's clock already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/records/clock_steps.h"
#include "collector/records/continuous_clock.h"
#include "collector/records/device_clock.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class ProcessClock {
 public:
  // How far CUPTI's clock is ahead of the process's, if that is known.
  void KnowDevice(int64_t ahead_ns) { device_.Know(ahead_ns); }

  // Before the batch's records. `last_device_end_ns`: the latest end on the device so far.
  // `start`: both clocks when the process said hello.
  void BeginBatch(const v1::Batch& batch, const v1::ClockPair& start, uint64_t last_device_end_ns);
  // Before the records of the device, whose durations are corrected.
  void BeginDeviceRecords(const v1::Batch& batch);
  // A step of the clock forward; owners of stored times must apply it.
  struct Forward {
    uint64_t by_ns = 0;  // 0: there was none
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
  };
  // After the batch's records.
  Forward EndBatch(const v1::Batch& batch);

  ContinuousClock& line() { return line_; }
  // A record's duration without clock steps.
  uint64_t Length(uint64_t start_ns, uint64_t end_ns) const { return steps_.Length(start_ns, end_ns); }
  // When the batch was sealed, on the line.
  uint64_t Now(const v1::Batch& batch) const { return line_.Now(batch.clock().realtime_ns()); }
  uint64_t Now(uint64_t realtime_ns) const { return line_.Now(realtime_ns); }
  // When the last batch was sealed, on the line.
  uint64_t last_ns() const { return last_ns_; }
  // The largest change of REALTIME against MONOTONIC.
  int64_t largest_step_ns() const { return largest_step_ns_; }
  // How far the clock was behind the line at that time of the line.
  uint64_t SetBackAt(uint64_t time_ns) const { return line_.BackAt(time_ns); }
  // How far the clock had been set forward by that time of the line, in all.
  uint64_t SetForwardBefore(uint64_t line_ns) const;
  // How far the clock had been set forward when the records of this batch (from 0) were taken.
  int64_t ShiftIn(uint64_t batch) const;
  // How far CUPTI's clock is ahead of the process's. Its records' times are corrected by that.
  int64_t device_ahead_ns() const { return device_.ahead_ns(); }

 private:
  struct ForwardStep {
    uint64_t batch = 0;    // the first that was sealed after it
    uint64_t from_ns = 0;  // on the line: times from here on are after it
    int64_t total_ns = 0;  // with the steps before

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, batch, from_ns, total_ns);
    }
  };
  // How far the clock was set between the previous batch and this one.
  int64_t StepOf(const v1::Batch& batch) const;

  int64_t offset_ns_ = 0;  // of REALTIME from MONOTONIC, at the last batch
  bool known_ = false;
  uint64_t batches_ = 0;
  uint64_t last_ns_ = 0;
  int64_t largest_step_ns_ = 0;
  ClockSteps steps_;
  ContinuousClock line_;
  DeviceClock device_;
  std::vector<ForwardStep> forward_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, offset_ns_, known_, batches_, last_ns_, largest_step_ns_, steps_, line_, device_,
                    forward_);
  }
};

}  // namespace gpuprobe::model
