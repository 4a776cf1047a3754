// A simulated job from its first Hello to its last Bye, as `gpuprobe simulate` feeds it to a collector: a
// pure function of job and seed.
//
// No clock, no socket, no sleep: frames go to a sink in the order of virtual time, step by step. Memory: some
// tens of kilobytes a rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "collector/simulate/rank_stream.h"
#include "collector/simulate/training_job.h"
#include "collector/simulate/virtual_node.h"

namespace gpuprobe::simulate {

// Where a job runs, in a cluster whose hosts and GPUs have names that other jobs see, too.
struct Placement {
  std::vector<std::string> hosts;  // in the order of ranks; empty: hosts and GPUs of this job alone
  int first_gpu = 0;               // of each host, that the job has; it sees it as GPU 0
};

// The UUID of a GPU of such a host.
std::string GpuUuid(std::string_view host, int gpu);

struct SimulationOptions {
  std::string name = "simulation";
  Placement placement = {};
  std::vector<std::string> command_line;
  uint64_t seed = 1;
  uint32_t uid = 0;
  // CLOCK_REALTIME at the simulation's beginning.
  uint64_t epoch_ns = 1'760'000'000'000'000'000;
};

class Simulation {
 public:
  // `bytes`: one or more delimited Frames of `rank`, sealed at `now_ns` after the beginning; none from a
  // process that dies. `last`: nothing comes after them; the connection closes. An error ends the simulation.
  using Sink = std::function<absl::Status(int rank, int64_t now_ns, std::string_view bytes, bool last)>;

  // `observer` may be nullptr; it must outlive the simulation.
  Simulation(const TrainingJob& job, const SimulationOptions& options, NodeObserver* observer);

  absl::Status Run(const Sink& sink);

  // Values of the observer's `step` outside of steps.
  static constexpr int kSetup = -1;
  static constexpr int kEvaluation = -2;

  const std::vector<RankStream>& streams() const { return streams_; }
  const std::vector<NodeCommunicator>& communicators() const { return communicators_; }
  const SimulationOptions& options() const { return options_; }
  const RankSettings& settings(int rank) const { return node_.settings(rank); }
  uint64_t records() const;
  bool hung() const { return hung_; }
  // When the last rank sent its last frame.
  int64_t ended_ns() const { return ended_ns_; }

 private:
  static constexpr int64_t kFlushNs = 500'000'000;  // as the injector's
  static constexpr int64_t kIdleReportNs = 5'000'000'000;
  static constexpr int64_t kHungForNs = 90'000'000'000;  // how long a hung job is watched
  static constexpr size_t kFullBatch = 12'000;           // records

  bool RunPrograms(int step);
  void Adjust(int step);
  absl::Status SendDue(const Sink& sink);
  absl::Status SendBatch(const Sink& sink, size_t rank, int64_t now_ns, bool all, bool bye, bool last);
  absl::Status Finish(const Sink& sink);
  absl::Status FinishHung(const Sink& sink);

  TrainingJob job_;
  SimulationOptions options_;
  std::vector<NodeCommunicator> communicators_;
  std::vector<RankStream> streams_;
  std::vector<Program> programs_;
  std::vector<int64_t> sealed_ns_;
  std::vector<bool> ended_;
  VirtualNode node_;
  v1::Frame scratch_;
  std::string bytes_;
  bool hung_ = false;
  int64_t ended_ns_ = 0;
};

}  // namespace gpuprobe::simulate
