// A training job as numbers (how many ranks, layers, bytes, what is wrong with it), and the programs of its
// ranks that follow from them.
//
// Separate from the table of scenarios, which only chooses numbers, and from the node, which only runs
// programs. The model is a transformer as PyTorch runs it: forward on the main thread, backward on
// autograd's, gradients reduced in buckets on a stream of their own, a fused optimizer, the batch copied from
// pinned memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/simulate/program.h"
#include "collector/simulate/virtual_node.h"

namespace gpuprobe::simulate {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
// The stream of a rank on which ranks with the same weights share gradients.
inline constexpr uint8_t kDataStream = 1;

enum class SlowBy : uint8_t { kNothing, kKernels, kLaunches, kInput, kMoreWork, kCopies };
enum class HangBy : uint8_t { kNothing, kMissingRank, kMismatch, kAllIssued };

struct TrainingJob {
  int ranks = 8;
  int ranks_per_host = 8;
  int steps = 40;
  int layers = 4;
  int tensor = 1;        // ranks that share a layer
  int pipeline = 1;      // stages
  bool sharded = false;  // FSDP: gathers weights, scatters gradients
  int zero =
      0;  // 1: the data ranks share optimizer state, 2: gradients, too; weights are gathered once a step
  int microbatches = 1;  // of a step: accumulated, or through the pipeline

  double work = 1;                            // factor on kernels' durations
  uint64_t layer_bytes = uint64_t{48} << 20;  // gradients of a layer
  uint64_t first_bucket_bytes = uint64_t{1} << 20;
  uint64_t bucket_bytes = uint64_t{25} << 20;
  bool overlap = true;      // gradients are reduced while backward goes on
  double overlap_from = 0;  // share of backward that must be over before the first reduction
  Link link{.alpha_ns = 3'000, .beta_bytes_per_ns = 350};  // as NVLink between eight H100
  // For communicators over several hosts; without one, `link`.
  std::optional<Link> network;
  double network_slowdown = 1;  // alpha and beta of `network` are this many times worse ...
  double network_from = 0;      // ... after this share of all steps ...
  int network_host = -1;        // ... where this host takes part; -1: wherever

  uint64_t batch_bytes = uint64_t{4} << 20;
  bool pageable = false;
  int64_t input_wait_ns = 60'000;  // of the host, a step
  int64_t launch_cost_ns = 4'000;
  int tiny_kernels = 0;      // instead of the layers: this many short kernels per step
  bool syncs = false;        // cudaDeviceSynchronize after every layer ...
  int64_t sync_work_ns = 0;  // ... and what the host does then, before it launches again
  int64_t tail_ns = 45'000;  // of the kernel that ends backward, after the last gradient is ready
  int read_loss_every = 10;  // steps between loss.item(); 0: never
  size_t queue_depth = 1024;
  bool nvtx = false;
  bool graph = false;  // the step is a replayed CUDA graph

  double kernel_noise = 0.01;
  double host_noise = 0.05;
  double call_noise = 0.005;

  int warmup_steps = 1;
  int64_t compile_ns = 400'000'000;  // of the host, in the first step
  double warmup_factor = 3;          // on kernels, in steps of warm-up
  int evaluate_every = 0;
  int evaluation_batches = 6;
  std::vector<double> lengths;  // of successive steps' sequences; empty: all alike
  double length_spread = 0;  // by which each rank's sequences are longer or shorter, another share each step

  SlowBy slow_by = SlowBy::kNothing;
  int slow_rank = 0;
  int slow_ranks = 1;  // how many, from this one on
  double slow_factor = 1;
  int slow_every = 1;    // of this many steps ...
  int slow_for = 1;      // ... this many in a row are slow
  double slow_from = 0;  // after this share of all steps

  // What the rank keeps besides trained weights and their optimizer state: weights that are not trained,
  // data.
  uint64_t frozen_bytes = uint64_t{14} << 30;
  uint64_t activation_bytes = uint64_t{20} << 30;
  uint64_t device_bytes = uint64_t{80} << 30;
  uint64_t leak_bytes = 0;      // a step, of one rank or all
  uint64_t fragment_bytes = 0;  // reserved but not usable, growing to this
  int out_of_memory_step = -1;
  bool tensors = false;               // PyTorch's allocator reports single tensors
  bool allocates_every_step = false;  // cudaMalloc and cudaFree in the step itself

  HangBy hang = HangBy::kNothing;
  int hang_rank = 0;
  int hang_step = 0;

  int other_ranks = 0;  // the last ones have another device, or another NCCL
  std::string other_device;
  uint32_t other_nccl = 0;
  // The work of a step, as passed to `gpuprobe report`.
  double parameters = 0;
  double tokens_per_step = 0;

  int64_t clock_step_ns = 0;  // of the second host
  int clock_step_at = 0;
  double lost_share = 0;

  int data() const { return ranks / tensor / pipeline; }
  // Per rank: the part it keeps of the weights that it trains, as float, and Adam's state for them.
  uint64_t weight_bytes() const {
    const uint64_t whole = layer_bytes * static_cast<uint64_t>(layers / pipeline);
    return sharded ? whole / static_cast<uint64_t>(data()) : whole;
  }
  uint64_t gradient_bytes() const {
    return zero == 2 ? weight_bytes() / static_cast<uint64_t>(data()) : weight_bytes();
  }
  uint64_t optimizer_bytes() const {
    return 2 * weight_bytes() / static_cast<uint64_t>(zero > 0 ? data() : 1);
  }
  uint64_t held_bytes() const { return weight_bytes() + optimizer_bytes() + frozen_bytes; }
};

// Names of ranges that a job's programs push.
const std::vector<std::string>& RangeNames();

std::vector<NodeCommunicator> Communicators(const TrainingJob& job);
// The link between these ranks in a step; -1: before the first one.
Link LinkOf(const TrainingJob& job, const std::vector<int>& members, int step);
// Settings of a rank, without its communicators.
RankSettings SettingsOf(const TrainingJob& job);
bool IsSlow(const TrainingJob& job, int rank, int step);
bool IsOther(const TrainingJob& job, int rank);
// How many collective operations of which size a step has; sizes are those of the API's arguments.
std::vector<uint64_t> Buckets(const TrainingJob& job);

// The instructions before the first step.
void BuildSetup(const TrainingJob& job, Program& program);
void BuildStep(const TrainingJob& job, int rank, int step, Program& program);
// Between two steps; empty when there is no evaluation after this step.
void BuildEvaluation(const TrainingJob& job, int rank, int step, Program& program);

}  // namespace gpuprobe::simulate
