// The expected report of a simulated job, from its schedule: steps and where their time went, collectives,
// who made whom wait.
//
// Listens to the node, so it knows what no record shows: when a collective's last rank arrived, why a host
// did not launch. Shares no code with the analysis. The definitions are those of the report
// (docs/report-json.md):
//   a step lasts, on the device's timeline, from the end of what was launched before its first launch to the
//   end of what was launched until the next step's (or an evaluation's) first launch; compute, communication,
//   copies: unions over streams, each without what stands before it; idle: the rest; idle until the launch of
//   what ends it is the host's: `sync` if the host was blocked when the device ran dry, `input` if it mostly
//   waited for input, else `host_bound`; from the launch on it is `launch_gap`.
// Times in the file are those of the rank's own clock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "collector/simulate/simulation.h"
#include "collector/simulate/training_job.h"
#include "tests/collector/simulate/intervals.h"

namespace gpuprobe::simulate {

class Truth : public NodeObserver {
 public:
  explicit Truth(const TrainingJob& job);

  void OnDeviceWork(int rank, const DeviceWork& work) override;
  void OnHostInterval(int rank, HostCause cause, int64_t start_ns, int64_t end_ns) override;
  void OnCall(const FinishedCall& call) override;
  void OnStep(int rank, int step) override;

  struct Step {
    int step = 0;  // or Simulation::kSetup, kEvaluation
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    int64_t compute_ns = 0;
    int64_t comm_ns = 0;
    int64_t exposed_comm_ns = 0;
    int64_t copy_ns = 0;
    int64_t idle_ns = 0;
    int64_t host_bound_ns = 0;
    int64_t input_ns = 0;
    int64_t sync_ns = 0;
    int64_t launch_gap_ns = 0;
    std::array<int64_t, static_cast<size_t>(Phase::kCount)> phase_ns{};
  };
  // Calls of one operation of one size on one communicator, in steps after the warm-up.
  struct Calls {
    uint64_t calls = 0;
    int64_t transfer_ns = 0;  // from the last arrival, a call
    int64_t rank_ns = 0;      // of all ranks' kernels
    uint64_t kernels = 0;
  };

  // After the simulation.
  void Finish();
  const std::vector<Step>& steps(int rank) const { return ranks_[static_cast<size_t>(rank)].steps; }
  // Seconds of the others' waiting that this rank caused, as the last one to arrive; by step.
  const std::map<int, int64_t>& blame(int rank) const { return ranks_[static_cast<size_t>(rank)].blame; }

  std::string Json(std::string_view scenario, const Simulation& simulation) const;

 private:
  struct HostInterval {
    HostCause cause;
    int64_t start_ns;
    int64_t end_ns;
  };
  // Launches from one OnStep to the next.
  struct Segment {
    int step = 0;
    std::vector<DeviceWork> work;
  };
  struct Rank {
    std::deque<Segment> segments;  // not measured yet
    std::deque<HostInterval> host;
    int64_t end_ns = -1;  // of all that was launched in measured segments
    std::vector<Step> steps;
    std::map<int, int64_t> blame;
    std::map<int, int64_t> waited;
  };
  // The n-th collective on the data stream of each step after the warm-up, summed over ranks.
  struct Place {
    uint64_t steps = 0;
    int64_t after_backward_ns = 0;  // its start, from backward's first kernel
    int64_t time_ns = 0;
    int64_t hidden_ns = 0;
  };
  using CallKey = std::tuple<int, CollectiveOp, uint64_t>;  // communicator, operation, bytes

  // After the warm-up, over ranks.
  double MeanStepNs() const;
  // The same job scheduled again, with no rank slow and equal work for all.
  double StepOfEqualRanksNs(const Simulation& simulation) const;
  void Measure(Rank& rank);
  void MeasureCalls(const Segment& segment, const Intervals& compute, const Step& step);
  void MeasureIdle(const Rank& rank, const Intervals& idle, const std::vector<DeviceWork>& work,
                   Step& step) const;

  TrainingJob job_;
  std::vector<Rank> ranks_;
  std::map<CallKey, Calls> calls_;
  std::vector<Place> places_;
  // Tensor parallelism: communication that is launched before backward, without compute at the same time.
  int64_t forward_exposed_ns_ = 0;
  int64_t forward_compute_ns_ = 0;
};

}  // namespace gpuprobe::simulate
