// The seam between the simulated driver and the simulated NCCL: kernels whose time other processes help to
// decide.
//
// libnccl launches its kernels through the core like any other kernel, so that callbacks, correlation ids,
// stream order, capture, CUPTI records and the truth's kernel line come by themselves; only start and end are
// the rendezvous's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpusim {

struct Interval {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// Device memory that a communicator takes for itself, 0 for none (GPUSIM_NCCL_BUFFERS_MIB).
uint64_t NcclBufferBytes();

// A meeting of ranks. One object serves one kernel instance (a replayed graph asks for a fresh one each
// time).
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // The stream has reached the kernel, which starts at `ready_ns`. Called once, by the scheduler's thread.
  virtual void Arrive(uint64_t ready_ns) = 0;
  // True, and `interval` set, once every rank has arrived. Polled by the scheduler's thread; must not block.
  virtual bool Resolve(Interval* interval) = 0;
  // The kernel has ended: what it receives is in its buffers from now on. Called once, by the scheduler's
  // thread.
  virtual void MoveBytes() {}
};

// Makes the rendezvous of each instance of a kernel that was launched or captured.
using RendezvousFactory = std::shared_ptr<Rendezvous> (*)(void* state);

// One call of the group, for the truth log; the core adds times, stream, device and correlation when the
// kernel is done.
struct CollectiveTruth {
  std::string op;    // "AllReduce"
  std::string comm;  // hash, 16 hex digits
  uint64_t seq = 0;
  int comm_rank = 0;
  int comm_ranks = 0;
  uint64_t count = 0;
  std::string datatype;
  uint64_t bytes = 0;
  std::string reduction;  // "sum"; empty: none
  int root = -1;
  int peer = -1;
  uint64_t issue_ns = 0;  // of a replay: when its graph was launched
  uint64_t plan = 0;
  std::string algorithm;  // empty: a send or receive, or an operation made of them
  std::string protocol;
  int channels = 0;
  uint64_t replay = 0;  // from 1: the n-th launch of what was captured; 0: launched at once
};

// A call that was taken or refused and launches nothing: its line, with its result and without times.
void LogCallWithoutKernel(const CollectiveTruth& call, int result);

// What became of a communicator on this rank: "created", "revoked", "aborted", "destroyed".
struct CommunicatorTruth {
  std::string comm;
  std::string parent;  // empty: none
  std::string name;    // as the program's configuration gives it; empty: it does not
  int comm_rank = 0;
  int comm_ranks = 0;
  int device = 0;
  const char* state = "";
};
void LogCommunicator(const CommunicatorTruth& communicator);

struct RendezvousLaunch {
  std::string
      kernel_name;  // "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", mangled
  uint32_t grid = 2;
  uint32_t block = 544;
  const void* communicator = nullptr;  // on the device: the kernel's first argument
  std::vector<CollectiveTruth> calls;
  mutable uint64_t replays = 0;  // so far; the schedule's mutex
  RendezvousFactory factory = nullptr;
  std::shared_ptr<void> state;
};

// Launches through cuLaunchKernelEx's callbacks on `stream` (CUstream; null is the legacy default stream of
// the current context). Returns a CUresult.
int LaunchRendezvousKernel(void* stream, RendezvousLaunch launch);

// For kernels that the node did not make, those of a real NCCL: a witness that knows which calls a launch
// carries fills `launch` (its name and shape are the launch's own) and returns true. `arguments`: the
// kernel's.
using LaunchWitness = bool (*)(const char* kernel_name, const void* stream, const void* arguments,
                               RendezvousLaunch* launch);
void SetLaunchWitness(LaunchWitness witness);

// Identity and knobs that libnccl shares with the core.
int ProcessRank();                // from the launcher's environment, -1 if none
bool RankHangsAt(uint64_t call);  // GPUSIM_HANG: this rank's n-th collective (from 0) is never issued
bool IsStuckAt(uint64_t call);    // GPUSIM_HANG without a rank: the n-th collective begins and never ends
struct LinkModel {
  uint64_t alpha_ns = 0;
  double bytes_per_s = 0;
};
LinkModel Link();     // GPUSIM_LINK
int CurrentDevice();  // of the calling thread

}  // namespace gpusim
