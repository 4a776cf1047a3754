// Sends and receives that are no pipeline, and some that are. `exchanges KIND`:
//   experts-fixed, experts-rotate  all to all in groups; one rank's expert has twice the work, always the
//                                  same one's or another's in each step
//   ring, ring-stall               each rank passes a block to the next while it computes on the last one;
//                                  with the stall, the host waits in each step
//   ring-alone                     the same with sends and receives that are not grouped
//   turns                          collectives in which the ranks take turns at being late, within a step
//   1f1b                           a pipeline whose steady state sends forward and receives backward in one
//                                  group, with ungrouped calls at its ends
//   interleaved                    a pipeline of two chunks a rank, whose steady state goes round
#include <cstdio>
#include <string>

#include "tests/e2e/programs/strangers/mini.h"

namespace {

using namespace strangers;

constexpr int kSteps = 40;
constexpr int kValues = 1 << 18;

struct Buffers {
  float* in = Floats(kValues);
  float* out = Floats(kValues);
  float* weights = Floats(kValues);
};

void AllToAll(const Rank& rank, const Buffers& b) {
  const size_t part = kValues / static_cast<size_t>(rank.id.world_size);
  CHECK_NCCL(ncclGroupStart());
  for (int peer = 0; peer < rank.id.world_size; ++peer) {
    rank.Send(b.out, part, peer, rank.compute);
    rank.Receive(b.in, part, peer, rank.compute);
  }
  CHECK_NCCL(ncclGroupEnd());
}

void ExpertsStep(const Rank& rank, const Buffers& b, int hot) {
  for (int layer = 0; layer < 3; ++layer) {
    Run(MatmulForward, b.out, kValues, rank.compute);
    AllToAll(rank, b);
    for (int i = 0; i < (rank.id.rank == hot ? 4 : 2); ++i) Run(ExpertGemm, b.in, kValues, rank.compute);
    AllToAll(rank, b);
  }
}

void RingStep(const Rank& rank, const Buffers& b, bool grouped) {
  const int next = (rank.id.rank + 1) % rank.id.world_size;
  const int previous = (rank.id.rank + rank.id.world_size - 1) % rank.id.world_size;
  const bool even = rank.id.rank % 2 == 0;
  for (int block = 0; block < 3 * rank.id.world_size; ++block) {
    rank.Order(rank.compute, rank.link);
    if (grouped) CHECK_NCCL(ncclGroupStart());
    if (even) rank.Send(b.out, kValues, next, rank.link);
    rank.Receive(b.in, kValues, previous, rank.link);
    if (!even) rank.Send(b.out, kValues, next, rank.link);
    if (grouped) CHECK_NCCL(ncclGroupEnd());
    Run(MatmulForward, b.weights, kValues, rank.compute);
    rank.Order(rank.link, rank.compute);
  }
}

void TurnsStep(const Rank& rank, const Buffers& b) {
  for (int call = 0; call < 2 * rank.id.world_size; ++call) {
    Run(MatmulForward, b.out, kValues, rank.compute);
    if (call % rank.id.world_size == rank.id.rank) Run(ExpertGemm, b.out, kValues, rank.compute);
    rank.Reduce(b.in, 1024, rank.compute);
  }
}

// Megatron's: forward_backward_pipelining_without_interleaving.
void OneForwardOneBackwardStep(const Rank& rank, const Buffers& b) {
  constexpr int kMicroBatches = 8;
  const int last = rank.id.world_size - 1;
  const int stage = rank.id.rank;
  const int warmup = last - stage;
  const auto forward = [&] { Run(MatmulForward, b.out, kValues, rank.compute); };
  const auto backward = [&] { Run(MatmulBackward, b.out, kValues, rank.compute); };
  for (int i = 0; i < warmup; ++i) {
    if (stage > 0) rank.Receive(b.in, kValues, stage - 1, rank.compute);
    forward();
    if (stage < last) rank.Send(b.out, kValues, stage + 1, rank.compute);
  }
  const int steady = kMicroBatches - warmup;
  if (stage > 0) rank.Receive(b.in, kValues, stage - 1, rank.compute);
  for (int i = 0; i < steady; ++i) {
    forward();
    if (stage < last) {
      CHECK_NCCL(ncclGroupStart());
      rank.Send(b.out, kValues, stage + 1, rank.compute);
      rank.Receive(b.in, kValues, stage + 1, rank.compute);
      CHECK_NCCL(ncclGroupEnd());
    }
    backward();
    if (stage == 0) continue;
    if (i + 1 < steady) CHECK_NCCL(ncclGroupStart());
    rank.Send(b.out, kValues, stage - 1, rank.compute);
    if (i + 1 == steady) continue;
    rank.Receive(b.in, kValues, stage - 1, rank.compute);
    CHECK_NCCL(ncclGroupEnd());
  }
  for (int i = 0; i < warmup; ++i) {
    if (stage < last) rank.Receive(b.in, kValues, stage + 1, rank.compute);
    backward();
    if (stage > 0) rank.Send(b.out, kValues, stage - 1, rank.compute);
  }
}

// Forward alone, twice round the ranks: what the first rank's first chunk gets comes from nowhere, and what
// the last rank's last chunk makes goes nowhere.
void InterleavedStep(const Rank& rank, const Buffers& b) {
  constexpr int kChunks = 2;
  const int ranks = rank.id.world_size;
  const int next = (rank.id.rank + 1) % ranks;
  const int previous = (rank.id.rank + ranks - 1) % ranks;
  const int works = kChunks * ranks;  // chunk 0 of all micro-batches, then chunk 1
  const auto chunk = [&](int work) { return work / ranks; };
  for (int work = 0; work <= works; ++work) {
    const bool sends = work > 0 && !(rank.id.rank == ranks - 1 && chunk(work - 1) == kChunks - 1);
    const bool receives = work < works && !(rank.id.rank == 0 && chunk(work) == 0);
    CHECK_NCCL(ncclGroupStart());
    if (sends) rank.Send(b.out, kValues, next, rank.compute);
    if (receives) rank.Receive(b.in, kValues, previous, rank.compute);
    CHECK_NCCL(ncclGroupEnd());
    if (work < works) Run(MatmulForward, b.out, kValues, rank.compute);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const Rank rank;
  const Buffers b;
  for (int step = 0; step < kSteps; ++step) {
    if (kind == "experts-fixed") {
      ExpertsStep(rank, b, 1);
    } else if (kind == "experts-rotate") {
      ExpertsStep(rank, b, (step * 7 + 1) % rank.id.world_size);
    } else if (kind.rfind("ring", 0) == 0) {
      RingStep(rank, b, kind != "ring-alone");
    } else if (kind == "turns") {
      TurnsStep(rank, b);
    } else if (kind == "1f1b") {
      OneForwardOneBackwardStep(rank, b);
    } else if (kind == "interleaved") {
      InterleavedStep(rank, b);
    } else {
      std::fprintf(stderr, "usage: exchanges KIND\n");
      return 2;
    }
    if (kind == "ring-stall") {
      CHECK_CUDA(cudaStreamSynchronize(rank.compute));
      usleep(6000);
    }
    Run(AdamUpdate, b.weights, kValues, rank.compute);
    if (kind != "1f1b" && kind != "interleaved") rank.Reduce(b.weights, kValues, rank.compute);
  }
  rank.Finish();
  return 0;
}
