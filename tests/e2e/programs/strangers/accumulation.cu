// Gradient accumulation over four micro-batches. `accumulation KIND`:
//   each       every micro-batch reduces all gradients: no_sync is missing
//   last       only the last one does
//   buckets    one micro-batch of four times the layers, so as many buckets of the same size
//   recompute  the same, with forward done again in backward before each bucket
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <string>

#include "tests/e2e/programs/strangers/mini.h"

namespace {

using namespace strangers;

constexpr int kSteps = 25;
constexpr int kLayers = 4;
constexpr int kMicroBatches = 4;
constexpr size_t kBucket = size_t{1} << 21;  // floats
constexpr int kValues = 1 << 16;

void Forward(const Rank& rank, float* weights, int layers) {
  nvtxRangePushA("forward");
  for (int layer = 0; layer < layers; ++layer) Run(MatmulForward, weights, kValues, rank.compute);
  nvtxRangePop();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const bool recompute = kind == "recompute";
  const bool once = kind == "buckets" || recompute;
  if (kind != "each" && kind != "last" && !once) {
    std::fprintf(stderr, "usage: accumulation KIND\n");
    return 2;
  }
  const int layers = once ? kLayers * kMicroBatches : kLayers;
  const Rank rank;
  float* weights = Floats(kBucket * static_cast<size_t>(layers));
  float* gradients = Floats(kBucket * static_cast<size_t>(layers));
  for (int step = 0; step < kSteps; ++step) {
    for (int batch = 0; batch < (once ? 1 : kMicroBatches); ++batch) {
      Forward(rank, weights, layers);
      nvtxRangePushA("backward");
      for (int layer = layers - 1; layer >= 0; --layer) {
        if (recompute) Forward(rank, weights, 1);
        Run(MatmulBackward, gradients, kValues, rank.compute);
        if (kind == "last" && batch + 1 < kMicroBatches) continue;
        rank.Order(rank.compute, rank.link);
        rank.Reduce(gradients + kBucket * static_cast<size_t>(layer), kBucket, rank.link);
      }
      nvtxRangePop();
      rank.Order(rank.link, rank.compute);
    }
    nvtxRangePushA("optimizer");
    for (int layer = 0; layer < layers; ++layer) Run(AdamUpdate, weights, kValues, rank.compute);
    nvtxRangePop();
  }
  rank.Finish();
  return 0;
}
