// What `gpuprobe look` prints of the processes that use GPUs, job by job: who is somewhere else than the
// others, who does not go on, and the stacks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collector/cli/stacks_screen.h"
#include "collector/observe/gpus_now.h"
#include "collector/render/text_layout.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {

struct LookedAt {
  LabelledStacks stacks;
  std::optional<int> rank;
  double cpus = 0;            // in use between both looks, on average
  std::optional<bool> moved;  // its main thread was elsewhere at the first look; nullopt: no stack is known
  std::vector<observe::GpuNow> gpus;  // that it has a context on, if NVML says so
};

// Ranks of one launcher on this host, or one process.
struct LookedAtJob {
  std::vector<LookedAt> processes;  // by rank
  double seconds = 0;               // between both looks
};

// "Rank 2 is somewhere else than the 3 others, in read /data/pipe: Shards.read (train.py:6). None of the 4
// has moved for 1.0 s." What is not known is not said.
std::string LookVerdict(const LookedAtJob& job);

std::string LookText(const std::vector<LookedAtJob>& jobs, const render::Screen& screen);
nlohmann::ordered_json LookJson(const std::vector<LookedAtJob>& jobs);

}  // namespace gpuprobe::cli
