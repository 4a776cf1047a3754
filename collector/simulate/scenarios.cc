#include "collector/simulate/scenarios.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gpuprobe::simulate {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

using Change = void (*)(TrainingJob&);

Scenario Make(std::string_view name, std::string_view summary, std::string_view first,
              std::vector<std::string_view> further, Change change) {
  Scenario scenario{.name = name,
                    .summary = summary,
                    .first_finding = first,
                    .further_findings = std::move(further),
                    .job = {}};
  change(scenario.job);
  return scenario;
}

std::vector<Scenario> AllScenarios() {
  std::vector<Scenario> all;
  all.push_back(Make("compute-bound", "kernels fill the step; communication is small and hidden", "healthy",
                     {}, [](TrainingJob& job) {
                       job.work = 2;
                       job.tensors = true;
                     }));
  all.push_back(Make("communication-bound", "4 GiB of gradients are reduced after backward, fully exposed",
                     "communication-bound", {"poor-overlap", "bucket-too-large"}, [](TrainingJob& job) {
                       job.tensors = true;
                       job.overlap = false;
                       job.layer_bytes = kGiB;
                       job.bucket_bytes = 200 * kMiB;
                     }));
  all.push_back(
      Make("perfect-overlap", "backward hides all communication", "healthy", {}, [](TrainingJob& job) {
        job.tensors = true;
        job.layer_bytes = 320 * kMiB;
        job.tail_ns = 2 * kMs;
      }));
  all.push_back(Make("partial-overlap", "79 % overlap efficiency: the first reduction comes late in backward",
                     "poor-overlap", {"communication-bound"}, [](TrainingJob& job) {
                       job.layer_bytes = 320 * kMiB;
                       job.overlap_from = 0.35;
                       job.tail_ns = 940 * kUs;
                     }));
  all.push_back(Make("straggler-kernels", "one rank's kernels run 1.3x slower throughout",
                     "straggler-slow-gpu", {"imbalance"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kKernels;
                       job.slow_rank = 5;
                       job.slow_factor = 1.3;
                     }));
  all.push_back(Make("straggler-launches", "one rank's host launches late", "straggler-late-launch",
                     {"imbalance", "launch-bound"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kLaunches;
                       job.slow_rank = 2;
                       job.slow_factor = 60;
                     }));
  all.push_back(Make("straggler-input", "one rank's input arrives late", "straggler-late-input",
                     {"imbalance", "input-bound"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kInput;
                       job.slow_rank = 6;
                       job.slow_factor = 500;
                     }));
  all.push_back(Make("straggler-work", "one rank has 1.35x as much data per step", "straggler-more-work",
                     {"imbalance"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kMoreWork;
                       job.slow_rank = 3;
                       job.slow_factor = 1.35;
                     }));
  all.push_back(Make("straggler-copies", "one rank's copies run 8x slower than the others'",
                     "straggler-slow-copies", {"imbalance"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kCopies;
                       job.slow_rank = 4;
                       job.slow_factor = 8;
                       job.batch_bytes = 48 * kMiB;
                     }));
  all.push_back(Make("two-speeds", "half of the ranks run on a different GPU type that is 1.4x slower",
                     "two-speeds", {"mixed-hardware"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kKernels;
                       job.slow_rank = 4;
                       job.slow_ranks = 4;
                       job.slow_factor = 1.4;
                       job.other_ranks = 4;
                       job.other_device = "NVIDIA H100 PCIe";
                     }));
  all.push_back(Make("mixed-hardware", "one rank has a different GPU type of the same speed",
                     "mixed-hardware", {}, [](TrainingJob& job) {
                       job.other_ranks = 1;
                       job.other_device = "NVIDIA H200";
                     }));
  all.push_back(Make("mixed-versions", "three ranks run a different NCCL version", "mixed-hardware", {},
                     [](TrainingJob& job) {
                       job.other_ranks = 3;
                       job.other_nccl = 22703;
                     }));
  all.push_back(Make("low-mfu",
                     "a fifth of the GPUs' peak, with 550 million parameters and 8,192 tokens per step (for "
                     "report --params)",
                     "low-mfu", {}, [](TrainingJob& job) {
                       job.parameters = 550e6;
                       job.tokens_per_step = 8192;
                     }));
  all.push_back(Make("straggler-intermittent", "one rank's kernels are slow in 3 of 20 steps",
                     "straggler-intermittent", {"imbalance"}, [](TrainingJob& job) {
                       job.steps = 60;
                       job.slow_by = SlowBy::kKernels;
                       job.slow_rank = 4;
                       job.slow_factor = 1.6;
                       job.slow_every = 20;
                       job.slow_for = 3;
                     }));
  all.push_back(Make("straggler-late", "one rank's GPU is throttled in the last quarter of the run",
                     "straggler-slow-gpu", {"imbalance"}, [](TrainingJob& job) {
                       job.slow_by = SlowBy::kKernels;
                       job.slow_rank = 1;
                       job.slow_factor = 1.3;
                       job.slow_from = 0.75;
                     }));
  all.push_back(Make("slow-network", "every link delivers a thirtieth of its bandwidth", "slow-network",
                     {"communication-bound", "poor-overlap"},
                     [](TrainingJob& job) { job.link = {.alpha_ns = 30 * kUs, .beta_bytes_per_ns = 10}; }));
  all.push_back(Make("input-bound", "every rank waits 60 ms per step for its input", "input-bound", {},
                     [](TrainingJob& job) {
                       job.input_wait_ns = 60 * kMs;
                       job.host_noise = 0.005;
                     }));
  all.push_back(Make("launch-bound", "1,500 kernels of 3 us per step, each taking 12 us to launch",
                     "launch-bound", {}, [](TrainingJob& job) {
                       job.tiny_kernels = 1'500;
                       job.launch_cost_ns = 12 * kUs;
                       job.host_noise = 0.005;
                       job.layer_bytes = 4 * kMiB;
                     }));
  all.push_back(Make("sync-in-loop",
                     "the host synchronises with the GPU after every layer and works before it continues",
                     "sync-in-loop", {"launch-bound"}, [](TrainingJob& job) {
                       job.syncs = true;
                       job.sync_work_ns = 250 * kUs;
                       job.layers = 8;
                       job.work = 0.5;
                       job.layer_bytes = 8 * kMiB;
                     }));
  all.push_back(Make("pageable-copies", "batches of 64 MiB are copied from pageable memory",
                     "pageable-copies", {"sync-in-loop"}, [](TrainingJob& job) {
                       job.pageable = true;
                       job.batch_bytes = 64 * kMiB;
                     }));
  all.push_back(Make("tiny-buckets", "gradients are reduced in 1 MiB buckets", "bucket-too-small",
                     {"communication-bound", "poor-overlap"}, [](TrainingJob& job) {
                       job.layer_bytes = 192 * kMiB;
                       job.first_bucket_bytes = 512 << 10;
                       job.bucket_bytes = kMiB;
                     }));
  all.push_back(Make("huge-buckets", "one bucket holds all gradients, so nothing can overlap",
                     "bucket-too-large", {"communication-bound", "poor-overlap"}, [](TrainingJob& job) {
                       job.layer_bytes = 512 * kMiB;
                       job.first_bucket_bytes = 4 * kGiB;
                       job.bucket_bytes = 4 * kGiB;
                     }));
  all.push_back(Make("fsdp", "weights are gathered and gradients scattered layer by layer", "healthy", {},
                     [](TrainingJob& job) {
                       job.tensors = true;
                       job.sharded = true;
                       job.layers = 8;
                       job.layer_bytes = 128 * kMiB;
                     }));
  all.push_back(
      Make("zero-1", "optimizer state is sharded", "healthy", {"poor-overlap"}, [](TrainingJob& job) {
        job.tensors = true;
        job.zero = 1;
        job.layer_bytes = 128 * kMiB;
      }));
  all.push_back(Make("zero-2", "optimizer state and gradients are sharded", "healthy", {"poor-overlap"},
                     [](TrainingJob& job) {
                       job.tensors = true;
                       job.zero = 2;
                       job.layer_bytes = 128 * kMiB;
                     }));
  all.push_back(Make("tensor-parallel", "2 groups of 4 ranks, each sharing every layer",
                     "communication-bound", {"poor-overlap"}, [](TrainingJob& job) {
                       job.tensor = 4;
                       job.tensors = true;
                     }));
  all.push_back(Make("pipeline", "4 stages, 8 microbatches, 1F1B schedule", "pipeline-bubble",
                     {"poor-overlap", "communication-bound"}, [](TrainingJob& job) {
                       job.ranks = 4;
                       job.pipeline = 4;
                       job.layers = 8;
                       job.microbatches = 8;
                       job.work = 0.5;
                       job.kernel_noise = 0;
                       job.host_noise = 0;
                     }));
  all.push_back(Make(
      "pipeline-slow-stage", "a pipeline of 4 stages, one of which has kernels that run 1.5x slower",
      "straggler-slow-gpu", {"pipeline-bubble", "poor-overlap", "communication-bound"}, [](TrainingJob& job) {
        job.ranks = 4;
        job.pipeline = 4;
        job.layers = 8;
        job.microbatches = 8;
        job.work = 0.5;
        job.slow_by = SlowBy::kKernels;
        job.slow_rank = 2;
        job.slow_factor = 1.5;
      }));
  all.push_back(
      Make("pipeline-hosts",
           "4 stages on two hosts whose clocks differ, with sequences (and activations) of four lengths",
           "pipeline-bubble", {"poor-overlap", "communication-bound"}, [](TrainingJob& job) {
             job.ranks = 4;
             job.ranks_per_host = 2;
             job.pipeline = 4;
             job.layers = 8;
             job.microbatches = 8;
             job.work = 0.5;
             job.lengths = {1.0, 0.75, 1.25, 0.875};
           }));
  // The calls inside the layers take a little more of the step than the bubble.
  all.push_back(Make("grid", "2 tensor x 2 data x 2 pipeline", "communication-bound", {"pipeline-bubble"},
                     [](TrainingJob& job) {
                       job.tensor = 2;
                       job.pipeline = 2;
                       job.microbatches = 4;
                     }));
  all.push_back(Make("accumulation", "gradients of 4 batches are accumulated before they are reduced",
                     "healthy", {}, [](TrainingJob& job) { job.microbatches = 4; }));
  all.push_back(Make("sequence-lengths", "sequence length changes from step to step, equally on all ranks",
                     "healthy", {}, [](TrainingJob& job) {
                       job.steps = 60;
                       job.lengths = {1.0, 0.6, 1.4, 0.9, 1.2, 0.7, 1.1, 0.8, 1.3};
                     }));
  all.push_back(Make("imbalance", "each rank's work varies by up to +-40 % from step to step", "imbalance",
                     {}, [](TrainingJob& job) {
                       job.steps = 60;
                       job.length_spread = 0.4;
                     }));
  all.push_back(
      Make("graph-replay", "the step is a replayed CUDA graph", "healthy", {}, [](TrainingJob& job) {
        job.graph = true;
        job.queue_depth = 4;
      }));
  all.push_back(Make("warm-up", "eight autotuning steps that take 4x as long", "healthy",
                     {"warmup-dominated"}, [](TrainingJob& job) {
                       job.steps = 60;
                       job.warmup_steps = 8;
                       job.warmup_factor = 4;
                       job.compile_ns = 3'000 * kMs;
                     }));
  all.push_back(Make("evaluation", "six batches are evaluated after every 15 steps", "healthy", {},
                     [](TrainingJob& job) {
                       job.steps = 60;
                       job.evaluate_every = 15;
                     }));
  all.push_back(
      Make("memory-leak", "64 MiB leak per step", "memory-leak", {"memory-pressure"}, [](TrainingJob& job) {
        job.leak_bytes = 64 * kMiB;
        job.tensors = true;
        job.allocates_every_step = true;
      }));
  all.push_back(Make("fragmentation", "PyTorch's allocator reserves 1.8x what it has allocated",
                     "fragmentation", {"memory-pressure"},
                     [](TrainingJob& job) { job.fragment_bytes = 30 * kGiB; }));
  all.push_back(Make("out-of-memory", "rank 3 fails to allocate 2 GiB in step 20 and exits", "out-of-memory",
                     {"memory-pressure", "hang-missing-rank", "rank-cut-off", "capture-incomplete"},
                     [](TrainingJob& job) {
                       job.activation_bytes = 62 * kGiB;
                       job.out_of_memory_step = 20;
                       job.slow_rank = 3;
                     }));
  all.push_back(Make("hang-missing-rank", "rank 5 does not issue its reductions in step 20",
                     "hang-missing-rank", {"rank-cut-off"}, [](TrainingJob& job) {
                       job.hang = HangBy::kMissingRank;
                       job.hang_rank = 5;
                       job.hang_step = 20;
                     }));
  all.push_back(Make("hang-pipeline", "rank 1 of a 4-stage pipeline stops before its send in step 20",
                     "hang-missing-rank", {"rank-cut-off", "pipeline-bubble", "poor-overlap"},
                     [](TrainingJob& job) {
                       job.ranks = 4;
                       job.pipeline = 4;
                       job.layers = 8;
                       job.microbatches = 8;
                       job.work = 0.5;
                       job.kernel_noise = 0;
                       job.host_noise = 0;
                       job.hang = HangBy::kMissingRank;
                       job.hang_rank = 1;
                       job.hang_step = 20;
                     }));
  all.push_back(Make("hang-graph",
                     "the step is a replayed CUDA graph, and rank 6 does not launch it in step 20",
                     "hang-missing-rank", {"rank-cut-off"}, [](TrainingJob& job) {
                       job.graph = true;
                       job.hang = HangBy::kMissingRank;
                       job.hang_rank = 6;
                       job.hang_step = 20;
                     }));
  all.push_back(Make("hang-mismatch", "rank 2 reduces a different size than the others in step 20",
                     "hang-mismatch", {"rank-cut-off"}, [](TrainingJob& job) {
                       job.hang = HangBy::kMismatch;
                       job.hang_rank = 2;
                       job.hang_step = 20;
                     }));
  all.push_back(Make("hang-all-issued", "all ranks issue a reduction in step 20, but it does not finish",
                     "hang-all-issued", {"rank-cut-off"}, [](TrainingJob& job) {
                       job.hang = HangBy::kAllIssued;
                       job.hang_rank = 1;
                       job.hang_step = 20;
                     }));
  all.push_back(Make("clock-stepped", "two hosts whose clocks differ; one is set forward by 80 ms in step 20",
                     "clock-stepped", {}, [](TrainingJob& job) {
                       job.ranks_per_host = 4;
                       job.clock_step_ns = 80 * kMs;
                       job.clock_step_at = 20;
                     }));
  all.push_back(Make("clock-set-back", "two hosts whose clocks differ; one is set back by 80 ms in step 20",
                     "clock-stepped", {}, [](TrainingJob& job) {
                       job.ranks_per_host = 4;
                       job.clock_step_ns = -80 * kMs;
                       job.clock_step_at = 20;
                     }));
  all.push_back(Make("records-lost", "30 % of the GPU records are lost", "records-lost",
                     {"capture-incomplete"}, [](TrainingJob& job) {
                       job.steps = 80;
                       job.lost_share = 0.3;
                     }));
  all.push_back(Make("healthy", "nothing is wrong; kernels, launches and the network vary as usual",
                     "healthy", {}, [](TrainingJob& job) {
                       job.kernel_noise = 0.03;
                       job.host_noise = 0.2;
                       job.call_noise = 0.03;
                     }));
  all.push_back(Make("healthy-nvtx", "nothing is wrong; steps and phases are annotated with NVTX", "healthy",
                     {}, [](TrainingJob& job) {
                       job.nvtx = true;
                       job.kernel_noise = 0.03;
                     }));
  all.push_back(Make("straggler-at-scale", "one of many ranks has slow kernels; for runs with --ranks 1024",
                     "straggler-slow-gpu", {"imbalance"}, [](TrainingJob& job) {
                       job.ranks = 64;
                       job.steps = 50;
                       job.slow_by = SlowBy::kKernels;
                       job.slow_rank = 37;
                       job.slow_factor = 1.3;
                       job.work = 6;  // large layers: about a hundred milliseconds a step
                       job.link.alpha_ns = 300;
                     }));
  return all;
}

}  // namespace

std::span<const Scenario> Scenarios() {
  static const auto* const kAll = new std::vector<Scenario>(AllScenarios());
  return *kAll;
}

absl::StatusOr<const Scenario*> FindScenario(std::string_view name) {
  std::vector<std::string> names;
  for (const Scenario& scenario : Scenarios()) {
    if (scenario.name == name) return &scenario;
    names.emplace_back(scenario.name);
  }
  return absl::NotFoundError(
      absl::StrCat("no scenario \"", std::string(name), "\"; available: ", absl::StrJoin(names, ", ")));
}

}  // namespace gpuprobe::simulate
