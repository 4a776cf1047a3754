// Runs the programs of all ranks of a job in virtual time and gives every launch, kernel, copy, collective
// and wait its times.
//
// Programs say what is done, record streams how it is reported, the truth what follows from it. The rules are
// those of the simulated node of tests/sim: streams in order, copies at the bus's rate, collectives that
// start when each rank's stream arrives and end together at alpha + bytes/beta after the last arrival. Cost:
// linear in instructions; a rank that waits for another one resumes when that one arrives. Deterministic: a
// rank's noise comes from its own seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/simulate/program.h"
#include "collector/simulate/random.h"
#include "collector/simulate/rank_stream.h"

namespace gpuprobe::simulate {

// Cost of one communicator's links, ring formulas of NCCL (n = bytes of the call's argument, P = ranks).
struct Link {
  int64_t alpha_ns = 10'000;
  double beta_bytes_per_ns = 100;  // = GB/s
};
int64_t TransferNs(CollectiveOp op, uint64_t bytes, int ranks, const Link& link);

struct NodeCommunicator {
  uint64_t hash = 0;
  std::string name;
  std::vector<int> members;  // ranks, by their rank in the communicator
  Link link;
};

struct RankSettings {
  double kernel_factor = 1;  // of compute kernels
  int64_t launch_cost_ns = 4'000;
  int64_t launch_latency_ns = 3'000;  // from the API call to the earliest start on an idle device
  int64_t stream_gap_ns = 800;        // between two operations of a stream
  double kernel_noise = 0;            // relative deviation
  double host_noise = 0;
  size_t queue_depth = 1024;  // launches that the driver queues before a launch waits
  double pcie_bytes_per_ns = 50;
  double pageable_bytes_per_ns = 6;
  std::vector<std::pair<int, int>>
      communicators;  // the node's number and the rank in it; the index is the rank's own number
};

// A piece of device work with its times: the record's fields, and what only the schedule knows.
struct DeviceWork {
  enum class Kind : uint8_t { kCompute, kCollective, kCopy, kMemset };
  Kind kind;
  Phase phase;
  uint8_t stream;
  int step;
  int64_t launch_ns;
  int64_t start_ns;
  int64_t end_ns;
};

// One collective or one pair of send and receive, when its last rank has arrived.
struct FinishedCall {
  int communicator;
  CollectiveOp op;
  uint64_t bytes;
  int step;
  int64_t end_ns;
  std::vector<std::pair<int, int64_t>> arrivals;  // rank and time, in order of being known
};

// The events that a truth listens to. All times are true times.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void OnDeviceWork(int rank, const DeviceWork& work) = 0;
  virtual void OnHostInterval(int rank, HostCause cause, int64_t start_ns, int64_t end_ns) = 0;
  virtual void OnCall(const FinishedCall& call) = 0;
  virtual void OnStep(int rank, int step) = 0;  // the next launch of this rank is of this step
};

class VirtualNode {
 public:
  VirtualNode(std::vector<NodeCommunicator> communicators, std::vector<RankSettings> settings,
              std::vector<RankStream>& streams, uint64_t seed, double call_noise, NodeObserver* observer);

  // Runs one program a rank. False when not every rank reached the end of its program: a rank waits for an
  // event that never happens.
  bool Run(const std::vector<const Program*>& programs, int step);

  RankSettings& settings(int rank) { return ranks_[static_cast<size_t>(rank)].settings; }
  const RankSettings& settings(int rank) const { return ranks_[static_cast<size_t>(rank)].settings; }
  // Applies to transfers whose last rank arrives from now on.
  void SetLink(size_t communicator, const Link& link) { communicators_[communicator].link = link; }
  int64_t host_ns(int rank) const { return ranks_[static_cast<size_t>(rank)].host_ns; }
  // The latest end of anything so far.
  int64_t device_ns(int rank) const;
  int64_t latest_ns() const { return latest_ns_; }
  bool exited(int rank) const { return ranks_[static_cast<size_t>(rank)].exited; }

 private:
  static constexpr size_t kStreams = 16;
  static constexpr int64_t kUnknown = INT64_MAX;

  struct Work {
    const Instruction* instruction = nullptr;  // of a program that outlives its step
    uint64_t correlation = 0;
    uint64_t graph_node = 0;
    int64_t launch_ns = 0;
    int64_t duration_ns = 0;
    int step = 0;
    uint32_t slot = 0;
    uint64_t meeting = 0;  // of a collective
    uint64_t call = 0;
    bool arrived = false;
  };
  struct Stream {
    std::deque<Work> queue;
    int64_t ready_ns = 0;
  };
  struct Call {
    FinishedCall facts;
    int needed = 0;
    int64_t last_ns = 0;
    int taken = 0;  // members that know the end
    bool done = false;
    bool stuck = false;  // never ends: its ranks do not agree, or the network lost it
  };
  // Calls that meet: those of a communicator, or of a directed pair in it.
  struct Meeting {
    std::deque<Call> calls;
    uint64_t first = 0;
  };
  struct OpenRange {
    uint64_t id;
    uint64_t parent;
    uint32_t name;
    int64_t start_ns;
  };
  struct RankCommunicator {
    uint64_t seq = 0;
    uint64_t collectives = 0;
  };
  struct CapturedGraph {
    bool captured = false;
    uint64_t first_node = 0;
  };
  struct Rank {
    RankSettings settings;
    Random random;
    RankStream* out = nullptr;
    const Program* program = nullptr;
    size_t next = 0;
    bool stopped = false;
    bool exited = false;
    bool step_begun = false;
    int64_t host_ns = 0;
    int64_t wait_began_ns = -1;
    uint32_t thread = RankStream::kMainThread;
    uint64_t correlation = 0;
    uint64_t plan = 0;
    uint64_t last_range = 0;
    uint64_t launches = 0;
    int64_t latest_device_ns = 0;
    std::vector<int64_t> slots;   // ends of the last `queue_depth` launches
    std::vector<int64_t> events;  // kUnknown: not there yet
    std::vector<Stream> streams;
    std::vector<OpenRange> ranges[2];
    std::vector<RankCommunicator> communicators;
    absl::flat_hash_map<uint64_t, uint64_t> pair_calls;
    absl::flat_hash_map<uint32_t, CapturedGraph> graphs;
    bool in_graph = false;
    bool capturing = false;
    uint64_t graph_correlation = 0;
    int64_t graph_launch_ns = 0;
    uint64_t graph_node = 0;
    uint32_t graph = 0;  // as Launches.graph
    uint32_t graph_slot = 0;
    bool copying = false;  // in a blocking copy
    bool queued = false;   // in the work list
  };

  void Advance(int rank);
  bool RunHost(int rank);     // true when it made progress
  bool RunStreams(int rank);  // true when something was resolved
  bool Execute(int rank, const Instruction& instruction);
  bool Enqueue(int rank, const Instruction& instruction);
  bool LaunchGraph(int rank, const Instruction& instruction);
  bool WaitForSlot(Rank& rank);
  // Waits for streams [first, last] to run empty; a record of it unless `kind` is unknown.
  bool WaitForStreams(int rank, size_t first, size_t last, v1::SyncKind kind);
  bool BlockingCopy(int rank, const Instruction& instruction);
  bool Resolve(int rank, Stream& stream);
  bool ResolveCall(int rank, Stream& stream, Work& work);
  void Done(int rank, const Work& work, DeviceWork::Kind kind, int64_t start_ns, int64_t end_ns);
  void TellCall(Rank& rank, const Instruction& instruction, uint64_t correlation, uint64_t graph_node,
                int64_t issue_ns, int64_t return_ns);
  uint64_t MeetingOf(int rank, const Instruction& instruction, int* needed, uint64_t* index);
  uint64_t InnermostRange(const Rank& rank, uint32_t thread) const;
  void Queue(int rank);
  Rank& Of(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  std::vector<NodeCommunicator> communicators_;
  std::vector<Rank> ranks_;
  absl::flat_hash_map<uint64_t, Meeting> meetings_;
  std::vector<int> work_list_;
  uint64_t seed_;
  double call_noise_;
  NodeObserver* observer_;
  int step_ = 0;
  int64_t latest_ns_ = 0;
};

}  // namespace gpuprobe::simulate
