// ddp_train: a small data-parallel training loop with NCCL, one process per rank, shaped as PyTorch's is.
//
// Forward on the main thread; backward on a second thread (named as PyTorch names it) while the main thread
// waits inside its "backward" range; gradients reduced bucket by bucket on a communication stream behind the
// backward pass; Adam; input copied from pinned memory on a copy stream. On a real GPU it verifies that the
// loss falls and that all ranks end with the same weights, bit for bit.

#include <nccl.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"
#include "samples/common/simulated.h"
#include "samples/ddp_train/options.h"
#include "samples/ddp_train/trainer.h"

namespace gpuprobe::samples {
namespace {

// True when every rank holds the same weights and the loss has fallen. With few steps the loss may still be
// anywhere.
bool Verify(const Options& options, const RankIdentity& identity, float first_loss, float last_loss,
            const std::vector<double>& checksums) {
  constexpr int kStepsThatMustHelp = 20;
  bool good = true;
  for (size_t rank = 1; rank < checksums.size(); ++rank) {
    if (checksums[rank] == checksums[0]) continue;
    std::fprintf(stderr, "rank %d: weights of rank %zu differ from those of rank 0 (%.17g, %.17g)\n",
                 identity.rank, rank, checksums[rank], checksums[0]);
    good = false;
  }
  if (!std::isfinite(last_loss)) {
    std::fprintf(stderr, "rank %d: the loss is %g\n", identity.rank, last_loss);
    good = false;
  } else if (options.steps >= kStepsThatMustHelp && last_loss > 0.9F * first_loss) {
    std::fprintf(stderr, "rank %d: the loss did not fall: %g at first, %g at last\n", identity.rank,
                 first_loss, last_loss);
    good = false;
  }
  return good;
}

double Mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

int Train(const Options& options) {
  const RankIdentity identity = FindRankIdentity();
  ChooseDevice(identity);
  ncclComm_t world = JoinWorld(identity, options.id_file);
  const bool simulated = OnSimulatedNode();
  const bool talks = identity.rank == 0;
  int status = 0;
  {
    Trainer trainer(options, identity, world);
    if (talks) {
      std::printf(
          "ddp_train: %d ranks, %d layers of %d x %d, %.1f MiB of gradients, batch %d a rank\n",
          identity.world_size, options.layers, options.width, options.width,
          static_cast<double>(options.layers) * options.width * options.width * sizeof(float) / (1 << 20),
          options.batch);
      const Trainer::Memory& memory = trainer.memory();
      std::printf(
          "ddp_train: each rank holds %.2f MiB of weights, %.2f of gradients, %.2f of Adam's state, %.2f of "
          "other data\n",
          Mib(memory.weights), Mib(memory.gradients), Mib(memory.optimizer_state), Mib(memory.other));
    }
    float first_loss = 0;
    for (int step = 1; step <= options.steps; ++step) {
      trainer.Step();
      if (step == 1) first_loss = trainer.ReadLoss();
      if (options.log_every > 0 && step % options.log_every == 0) {
        const float loss = trainer.ReadLoss();
        if (talks && !simulated) std::printf("step %4d  loss %.6f\n", step, loss);
      }
      if (step % options.epoch == 0) {
        const float loss = trainer.Evaluate();
        if (talks && !simulated) std::printf("step %4d  evaluation loss %.6f\n", step, loss);
      }
    }
    const float last_loss = trainer.Evaluate();
    const std::vector<double> checksums = trainer.WeightChecksums();
    if (simulated) {
      if (talks)
        std::printf("ddp_train: %d steps; the simulated node computes nothing, so results are not checked\n",
                    options.steps);
    } else {
      if (!Verify(options, identity, first_loss, last_loss, checksums)) status = 1;
      if (talks) std::printf("final loss %.6f, weights checksum %.12g\n", last_loss, checksums[0]);
    }
  }
  CHECK_NCCL(ncclCommDestroy(world));
  return status;
}

}  // namespace
}  // namespace gpuprobe::samples

int main(int argc, char** argv) {
  return gpuprobe::samples::Train(gpuprobe::samples::ParseOptions(argc, argv));
}
