// A process's last sign of life of each kind: its last call, its last launch, what its host is doing. Plain
// data of ProcessModel.
//
// Separate because only the search for hangs reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collector/model/clock/continuous_clock.h"
#include "collector/model/records.h"
#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

struct HostProgress {
  // Less is what a process reads and writes anyway: its log lines, our own look at /proc.
  static constexpr uint64_t kIoWorthMentioning = uint64_t{256} << 10;

  // The collective issued last, on whichever communicator.
  struct LastCall {
    uint64_t issue_ns = 0;  // 0: none was
    uint64_t return_ns = 0;
    uint32_t op = 0;  // StringDef
    uint32_t comm = 0;
    uint64_t seq = 0;
    uint64_t plan = 0;
    uint64_t done_ns = 0;  // end of its kernel, 0: not known to have ended

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, issue_ns, return_ns, op, comm, seq, plan, done_ns);
    }
  };
  LastCall last_call;
  uint64_t last_launch_ns = 0;
  uint64_t last_device_end_ns = 0;
  uint64_t io_bytes = 0;              // read and written by the process so far
  uint64_t last_io_ns = 0;            // when that had grown by kIoWorthMentioning
  uint64_t last_left_out_ns = 0;      // the latest launch or NCCL call that was left out on request
  std::vector<uint32_t> open_ranges;  // StringDefs of the main thread's ranges, outermost first
  uint32_t blocked_in = 0;            // StringDef of the call that the main thread waits in, 0: none
  uint64_t blocked_since_ns = 0;
  uint64_t last_wait_end_ns = 0;  // when it last returned from such a call

  void On(const LaunchRecord& r) { last_launch_ns = std::max(last_launch_ns, r.time_ns); }
  void On(const CollectiveRecord& r);
  // A collective is known to have ended.
  void OnFinished(uint32_t comm, uint64_t seq, uint64_t end_ns);
  // What the batch says of the host. `left_out`: records that were left out on request, with the batch
  // before.
  void OnBatch(const v1::Batch& batch, ContinuousClock& line, uint64_t left_out);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, last_call, last_launch_ns, last_device_end_ns, io_bytes, last_io_ns,
                    last_left_out_ns, open_ranges, blocked_in, blocked_since_ns, last_wait_end_ns);
  }
};

}  // namespace gpuprobe::model
