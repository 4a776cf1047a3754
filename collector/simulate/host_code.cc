#include "collector/simulate/host_code.h"

namespace gpuprobe::simulate {
namespace {

constexpr HostFunction kEmptyCache[] = {
    {"<module>", "train.py", 41},
    {"train", "train.py", 14},
    {"empty_cache", "/usr/lib/python3/dist-packages/torch/cuda/memory.py", 224},
};
constexpr HostFunction kSave[] = {
    {"<module>", "train.py", 41},
    {"save_checkpoint", "train.py", 88},
    {"save", "/usr/lib/python3/dist-packages/torch/serialization.py", 943},
    {"_save", "/usr/lib/python3/dist-packages/torch/serialization.py", 1214},
};

constexpr HostFunction kMetric[] = {
    {"<module>", "train.py", 41},
    {"train", "train.py", 16},
    {"confusion", "metrics.py", 7},
};

// Python collects garbage wherever an object is made.
constexpr HostFunction kModel[] = {
    {"<module>", "train.py", 41},
    {"train", "train.py", 12},
    {"forward", "model.py", 57},
};

}  // namespace

SampledCode CodeOf(HostCode code) {
  if (code == HostCode::kSavesCheckpoint)
    return {.stack = kSave, .call = {}, .writes = true, .file = "/checkpoints/step.pt"};
  if (code == HostCode::kComputesMetric) return {.stack = kMetric, .lines = 4};
  if (code == HostCode::kCollectsGarbage) return {.stack = kModel};
  return {.stack = kEmptyCache, .call = "cuMemFree_v2"};
}

}  // namespace gpuprobe::simulate
