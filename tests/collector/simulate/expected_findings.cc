#include "tests/collector/simulate/expected_findings.h"

#include <algorithm>

namespace gpuprobe::simulate {

std::span<const Expected> AllExpected() {
  static const auto* const kAll = new std::vector<Expected>{
      {.scenario = "compute-bound", .first = "healthy", .further = {}},
      {.scenario = "communication-bound",
       .first = "communication-bound",
       .further = {"poor-overlap", "bucket-too-large"}},
      {.scenario = "perfect-overlap", .first = "healthy", .further = {}},
      {.scenario = "partial-overlap", .first = "poor-overlap", .further = {"communication-bound"}},
      {.scenario = "straggler-kernels", .first = "straggler-slow-gpu", .further = {"imbalance"}},
      {.scenario = "straggler-launches",
       .first = "straggler-late-launch",
       .further = {"imbalance", "launch-bound"}},
      {.scenario = "straggler-input",
       .first = "straggler-late-input",
       .further = {"imbalance", "input-bound"}},
      {.scenario = "straggler-work", .first = "straggler-more-work", .further = {"imbalance"}},
      {.scenario = "straggler-copies", .first = "straggler-slow-copies", .further = {"imbalance"}},
      {.scenario = "two-speeds", .first = "two-speeds", .further = {"mixed-hardware"}},
      {.scenario = "mixed-hardware", .first = "mixed-hardware", .further = {}},
      {.scenario = "mixed-versions", .first = "mixed-hardware", .further = {}},
      {.scenario = "low-mfu",
       .first = "low-mfu",
       .further = {},
       .parameters = 550e6,
       .tokens_per_step = 8192},
      {.scenario = "straggler-intermittent", .first = "straggler-intermittent", .further = {"imbalance"}},
      {.scenario = "straggler-late", .first = "straggler-slow-gpu", .further = {"imbalance"}},
      {.scenario = "slow-network",
       .first = "slow-network",
       .further = {"communication-bound", "poor-overlap"}},
      {.scenario = "input-bound", .first = "input-bound", .further = {}},
      {.scenario = "launch-bound", .first = "launch-bound", .further = {}},
      {.scenario = "sync-in-loop", .first = "sync-in-loop", .further = {"launch-bound"}},
      {.scenario = "host-pause", .first = "host-pause", .further = {"imbalance"}},
      {.scenario = "python-metric", .first = "host-pause", .further = {"imbalance"}},
      {.scenario = "checkpoint", .first = "straggler-intermittent", .further = {"long-steps"}},
      {.scenario = "pageable-copies", .first = "pageable-copies", .further = {"sync-in-loop"}},
      {.scenario = "tiny-buckets",
       .first = "bucket-too-small",
       .further = {"communication-bound", "poor-overlap"}},
      {.scenario = "huge-buckets",
       .first = "bucket-too-large",
       .further = {"communication-bound", "poor-overlap"}},
      {.scenario = "fsdp", .first = "healthy", .further = {}},
      {.scenario = "zero-1", .first = "healthy", .further = {"poor-overlap"}},
      {.scenario = "zero-2", .first = "healthy", .further = {"poor-overlap"}},
      {.scenario = "tensor-parallel", .first = "communication-bound", .further = {"poor-overlap"}},
      {.scenario = "pipeline",
       .first = "pipeline-bubble",
       .further = {"poor-overlap", "communication-bound"}},
      {.scenario = "pipeline-slow-stage",
       .first = "straggler-slow-gpu",
       .further = {"pipeline-bubble", "poor-overlap", "communication-bound"}},
      {.scenario = "pipeline-hosts",
       .first = "pipeline-bubble",
       .further = {"poor-overlap", "communication-bound"}},
      // The calls inside the layers take a little more of the step than the bubble.
      {.scenario = "grid", .first = "communication-bound", .further = {"pipeline-bubble"}},
      {.scenario = "accumulation", .first = "healthy", .further = {}},
      {.scenario = "sequence-lengths", .first = "healthy", .further = {}},
      {.scenario = "imbalance", .first = "imbalance", .further = {}},
      {.scenario = "graph-replay", .first = "healthy", .further = {}},
      {.scenario = "warm-up", .first = "healthy", .further = {"warmup-dominated"}},
      {.scenario = "evaluation", .first = "healthy", .further = {}},
      {.scenario = "memory-leak", .first = "memory-leak", .further = {"memory-pressure"}},
      {.scenario = "fragmentation", .first = "fragmentation", .further = {"memory-pressure"}},
      {.scenario = "out-of-memory",
       .first = "out-of-memory",
       .further = {"memory-pressure", "hang-missing-rank", "rank-cut-off", "capture-incomplete"}},
      {.scenario = "hang-missing-rank", .first = "hang-missing-rank", .further = {"rank-cut-off"}},
      {.scenario = "hang-pipeline",
       .first = "hang-missing-rank",
       .further = {"rank-cut-off", "pipeline-bubble", "poor-overlap"}},
      {.scenario = "hang-graph", .first = "hang-missing-rank", .further = {"rank-cut-off"}},
      {.scenario = "hang-mismatch", .first = "hang-mismatch", .further = {"rank-cut-off"}},
      {.scenario = "hang-all-issued", .first = "hang-all-issued", .further = {"rank-cut-off"}},
      {.scenario = "clock-stepped", .first = "clock-stepped", .further = {}},
      {.scenario = "clock-set-back", .first = "clock-stepped", .further = {}},
      {.scenario = "records-lost", .first = "records-lost", .further = {"capture-incomplete"}},
      {.scenario = "healthy", .first = "healthy", .further = {}},
      {.scenario = "healthy-nvtx", .first = "healthy", .further = {}},
      {.scenario = "straggler-at-scale", .first = "straggler-slow-gpu", .further = {"imbalance"}},
  };
  return *kAll;
}

const Expected& ExpectedOf(std::string_view scenario) {
  static const Expected kNothing{};
  const auto all = AllExpected();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Expected& each) { return each.scenario == scenario; });
  return found == all.end() ? kNothing : *found;
}

}  // namespace gpuprobe::simulate
