// A training job as numbers: how many ranks, layers, bytes, and what is wrong with it. Scenarios choose the
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collector/simulate/virtual_node.h"

namespace gpuprobe::simulate {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
// As NVLink between eight H100.
inline constexpr Link kNvLink{.alpha_ns = 3'000, .beta_bytes_per_ns = 350};

struct Gradients {
  uint64_t layer_bytes = 48 * kMiB;  // of each layer
  uint64_t first_bucket_bytes = kMiB;
  uint64_t bucket_bytes = 25 * kMiB;
  bool overlap = true;      // reduced while backward goes on
  double overlap_from = 0;  // share of backward that must be over before the first reduction
};

// Between hosts: for communicators that span several.
struct Network {
  std::optional<Link> link = {};  // none: as within a host
  double slowdown = 1;            // alpha and beta are this many times worse ...
  double from = 0;                // ... after this share of all steps ...
  int host = -1;                  // ... where this host takes part; -1: wherever
};

struct Input {
  int64_t wait_ns = 60'000;  // of the host, a step
  uint64_t batch_bytes = 4 * kMiB;
  bool pageable = false;
  std::span<const double> lengths = {};  // of successive steps' sequences; empty: all alike
  double spread =
      0;  // each rank's sequences are up to this share longer or shorter, differently in each step
};

// What the host does after a step, before it goes on.
struct HostPause {
  int64_t ns = 0;
  HostCode code = HostCode::kNotSampled;
  int rank = -1;           // -1: all
  int every = 1;           // steps
  bool staggered = false;  // each rank in other steps, as garbage is collected
};

struct Host {
  int64_t launch_cost_ns = 4'000;
  size_t queue_depth = 1024;  // of launches
  bool syncs = false;         // cudaDeviceSynchronize after every layer ...
  int64_t sync_work_ns = 0;   // ... and what the host does then, before it launches again
  int read_loss_every = 10;   // steps between loss.item(); 0: never
  HostPause pause = {};
};

// Relative deviations.
struct Noise {
  double kernels = 0.01;
  double host = 0.05;
  double calls = 0.005;
};

struct WarmUp {
  int steps = 1;
  double factor = 3;                 // on kernels, in these steps
  int64_t compile_ns = 400'000'000;  // of the host, in the first step
};

struct Evaluation {
  int every = 0;  // steps; 0: never
  int batches = 6;
};

enum class SlowBy : uint8_t { kNothing, kKernels, kLaunches, kInput, kMoreWork, kCopies };

struct Slow {
  SlowBy by = SlowBy::kNothing;
  int rank = 0;
  int ranks = 1;  // how many, from this one on
  double factor = 1;
  int every = 1;    // of this many steps ...
  int steps = 1;    // ... this many in a row are slow
  double from = 0;  // after this share of all steps
};

enum class HangBy : uint8_t { kNothing, kMissingRank, kMismatch, kAllIssued };

struct Hang {
  HangBy by = HangBy::kNothing;
  int rank = 0;
  int step = 0;
};

// A process dies in the middle of a step, without a word.
struct Death {
  int rank = -1;  // -1: none does
  int step = 0;
};

struct Memory {
  uint64_t device_bytes = uint64_t{80} << 30;
  // What a rank keeps besides trained weights and their optimizer state: weights that are not trained, data.
  uint64_t frozen_bytes = uint64_t{14} << 30;
  uint64_t activation_bytes = uint64_t{20} << 30;
  uint64_t leak_bytes = 0;            // each step
  uint64_t fragment_bytes = 0;        // reserved but not usable, growing to this
  bool tensors = false;               // PyTorch's allocator reports single tensors
  bool allocates_every_step = false;  // cudaMalloc and cudaFree in the step itself
  int refuses_in_step = -1;           // out of memory, for the rank that `Slow` names
};

// The last ranks have another device, or another NCCL.
struct OtherHardware {
  int ranks = 0;
  std::string_view device = {};
  uint32_t nccl = 0;
};

// The clock of the second host is set.
struct ClockStep {
  int64_t ns = 0;
  int step = 0;
};

struct TrainingJob {
  int ranks = 8;
  int ranks_per_host = 8;
  int steps = 40;
  int layers = 4;
  int tensor = 1;        // ranks that share a layer
  int pipeline = 1;      // stages
  bool sharded = false;  // FSDP: gathers weights, scatters gradients
  // 1: the data ranks share optimizer state, 2: gradients, too; weights are gathered once a step
  int zero = 0;
  int microbatches = 1;  // of a step: accumulated, or through the pipeline
  double work = 1;       // factor on kernels' durations
  Gradients gradients = {};
  Link link = kNvLink;
  Network network = {};

  Input input = {};
  Host host = {};
  int tiny_kernels = 0;      // instead of the layers: this many short kernels per step
  int64_t tail_ns = 45'000;  // of the kernel that ends backward, after the last gradient is ready
  bool nvtx = false;
  bool graph = false;  // the step is a replayed CUDA graph
  Noise noise = {};
  WarmUp warmup = {};
  Evaluation evaluation = {};
  Memory memory = {};

  Slow slow = {};
  Hang hang = {};
  Death death = {};
  OtherHardware other = {};
  ClockStep clock_step = {};
  double lost_share = 0;

  int data() const { return ranks / tensor / pipeline; }
  // Per rank: the part it keeps of the weights that it trains, as float, and Adam's state for them.
  uint64_t weight_bytes() const {
    const uint64_t whole = gradients.layer_bytes * static_cast<uint64_t>(layers / pipeline);
    return sharded ? whole / static_cast<uint64_t>(data()) : whole;
  }
  uint64_t gradient_bytes() const {
    return zero == 2 ? weight_bytes() / static_cast<uint64_t>(data()) : weight_bytes();
  }
  uint64_t optimizer_bytes() const {
    return 2 * weight_bytes() / static_cast<uint64_t>(zero > 0 ? data() : 1);
  }
  uint64_t held_bytes() const { return weight_bytes() + optimizer_bytes() + memory.frozen_bytes; }
};

std::vector<NodeCommunicator> Communicators(const TrainingJob& job);
// The link between these ranks in a step; -1: before the first one.
Link LinkOf(const TrainingJob& job, const std::vector<int>& members, int step);
// Settings of a rank, without its communicators.
RankSettings SettingsOf(const TrainingJob& job);
bool IsSlow(const TrainingJob& job, int rank, int step);
bool IsOther(const TrainingJob& job, int rank);
// How many collective operations of which size a step has; sizes are those of the API's arguments.
std::vector<uint64_t> Buckets(const TrainingJob& job);

}  // namespace gpuprobe::simulate
