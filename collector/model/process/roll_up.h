// What a process's batches are reduced to, for whoever compares it with other processes: its steps, the plans
// that are over and when, the calls that wait. Some hundred bytes a step, whatever it launches.
//
// A model that reads roll-ups (Hello.rolled_up) tells the job the same as the one that made them. What they
// lack is what one process alone shows, such as its kernels by name: its whole state has that, which
// JobModel::RollUp adds now and then.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "collector/model/calls/collective_tracker.h"
#include "collector/records/process_names.h"
#include "collector/records/rows.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class RollUp {
 public:
  // Of a job with more ranks, times are rounded down, which more than halves what a step takes: those of
  // arrivals are compared with other hosts' clocks, which are known to some microseconds, and when a call was
  // issued matters where it waits for seconds.
  static constexpr int kMostExact = 1024;
  static constexpr uint64_t kArrivalNs = 2'048;
  static constexpr uint64_t kArrivalParts = 128;  // or to such a part of the call's own time, if that is more
  static constexpr uint64_t kIssueNs = 1'048'576;
  static constexpr uint64_t kMostTogetherNs = 100'000'000;  // of calls that wait and have one time

  // `ranks`: of the job.
  explicit RollUp(int ranks) : coarse_(ranks > kMostExact) {}
  // Since the last Take: definitions of a batch, and what it made known.
  void Define(const v1::Batch& batch);
  void Issued(const CollectiveRecord& call);
  void Finished(uint32_t comm, uint64_t seq);
  void Settled(const SettledPlan& plan);
  // At level calls, where nothing else is known.
  void Traced(const TracedStepRecord& step) { traced_steps_.push_back(step); }
  void Traced(const TracedCallRecord& call) { traced_calls_.push_back(call); }
  void Traced(const CallTimeRecord& time) {
    call_times_.push_back(time);
    call_times_.back().op = 0;  // the call has it
  }

  struct Known {
    const ProcessNames& names;
    const CollectiveTracker& collectives;
    const std::vector<RankStepRecord>& steps;  // completed since
    const std::vector<uint32_t>& texts;        // StringDefs that the state refers to
    uint64_t last_wait_end_ns;                 // HostProgress
  };
  // They are in an earlier roll-up.
  void ForgetRows();
  // What came since the last call.
  v1::Batch Take(const Known& known);

 private:
  void Define(const ProcessNames& names, uint32_t text);
  void DefineSeries(const Known& known);
  void RoundIssued(uint64_t last_wait_end_ns);

  bool coarse_;
  v1::Batch next_;
  std::vector<CollectiveRecord> issued_;
  std::vector<FinishedCallRecord> finished_;
  std::vector<ArrivalRecord> arrivals_;
  std::vector<ArrivalEndRecord> ends_;
  std::vector<TracedStepRecord> traced_steps_;
  std::vector<TracedCallRecord> traced_calls_;
  std::vector<CallTimeRecord> call_times_;
  std::set<uint32_t> texts_;  // that were defined
  size_t series_ = 0;         // likewise
};

}  // namespace gpuprobe::model
