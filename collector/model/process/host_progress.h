// A process's last sign of life of each kind: its last call, its last launch, what its host is doing. Plain
// data of ProcessModel.
//
// Read by the search for hangs.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/records/continuous_clock.h"
#include "collector/records/rows.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

struct HostProgress {
  // Any process reads and writes less than this anyway: its log lines, our reads of /proc.
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
    bool traced = false;   // at level calls: what was launched since is not recorded

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, issue_ns, return_ns, op, comm, seq, plan, done_ns, traced);
    }
  };
  // A call that creates a communicator. It returns when all ranks have made it, or at once, and goes on in
  // the background.
  struct Creation {
    uint64_t since_ns = 0;  // 0: there is none; of a refused one: when it returned
    uint64_t hash = 0;      // 0: not known
    uint64_t parent = 0;    // hash of the communicator that it is split from, 0: none
    int32_t rank = -1;
    int32_t ranks = 0;     // 0: not known
    uint32_t made_by = 0;  // StringDef
    int32_t result = 0;    // ncclResult_t of a refused one; else 0, or ncclInProgress in the background

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, since_ns, hash, parent, rank, ranks, made_by, result);
    }
  };
  LastCall last_call;
  Creation creating;  // that a thread is in now, or that goes on in the background
  Creation refused;   // the last one that failed
  uint64_t last_launch_ns = 0;
  uint64_t longest_pause_ns = 0;  // between two launches
  uint64_t last_device_end_ns = 0;
  uint64_t io_bytes = 0;              // read and written by the process so far
  uint64_t last_io_ns = 0;            // when that had grown by kIoWorthMentioning
  uint64_t last_left_out_ns = 0;      // the latest launch or NCCL call that was left out on request
  std::vector<uint32_t> open_ranges;  // StringDefs of the main thread's ranges, outermost first
  uint32_t blocked_in = 0;            // StringDef of the call that the main thread waits in, 0: none
  uint64_t blocked_since_ns = 0;
  uint64_t last_wait_end_ns = 0;  // when it last returned from such a call
  // When CUPTI's buffers were last flushed with running work in them; and how many records of running work
  // such flushes have lost.
  uint64_t last_full_flush_ns = 0;
  uint64_t unfinished_records = 0;

  void On(const LaunchRecord& r);
  void On(const CollectiveRecord& r);
  void On(const TracedCallRecord& r);
  // A collective is known to have ended.
  void OnFinished(uint32_t comm, uint64_t seq, uint64_t end_ns);
  // Takes what the batch reports about the host. `left_out`: records that were left out on request, with the
  // batch before.
  void OnBatch(const v1::Batch& batch, ContinuousClock& line, uint64_t left_out);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, last_call, creating, refused, last_launch_ns, longest_pause_ns, last_device_end_ns,
                    io_bytes, last_io_ns, last_left_out_ns, open_ranges, blocked_in, blocked_since_ns,
                    last_wait_end_ns, last_full_flush_ns, unfinished_records);
  }
};

}  // namespace gpuprobe::model
