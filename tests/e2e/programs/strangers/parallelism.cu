// Trainings that share their work out in every usual way, each with the small calls that real ones make
// beside it. `parallelism KIND`; six layers of a million weights each, on two or four ranks:
//   ddp                AllReduce of each layer's gradients in backward
//   ddp-counts         the same; numbers of tokens are gathered before forward, a loss is averaged after it
//   ddp-evaluation     the same; an evaluation every 5 steps gathers 1 MiB of outputs for each of its batches
//   ddp-norms          the same; batch normalisation gathers its statistics amid forward, and reduces their
//                      gradients amid backward
//   fsdp               AllGather before each layer of forward and backward, ReduceScatter in backward
//   fsdp-norms         the same; the norms of 16,384 tensors are reduced after backward
//   fsdp-loss          the same; the loss is averaged between forward and backward, on a communicator of its
//                      own
//   fsdp-accumulates   fsdp in two micro-batches
//   fsdp-silent        fsdp with kernels whose names tell nothing about passes
//   hsdp               fsdp in two groups of two; between the groups, shards of gradients are reduced
//   zero1              gradients are reduced after backward, each rank updates its half, all gather it
//   zero1-ddp          gradients are reduced in backward, each rank updates its half and broadcasts it
//   zero2              gradients are scattered in backward, each rank updates its half, all gather it
//   zero2-accumulates  zero2 in four micro-batches, each of which scatters
//   zero2-copies       zero2, with weights that are copied to their places one by one
//   tensor             two AllReduce of activations in each layer's forward and backward, over all ranks
//   grid               the same over pairs, and ddp between the pairs; a norm and a loss over all ranks
//   sequence           as grid, but gathers before and scatters after each part of a layer
//   experts            ddp; tokens go to all ranks and come back in each layer
//   ring-fsdp          fsdp; in each layer, blocks go round the ranks
//   pipeline           two stages of two ranks each, which reduce their gradients
//   alone              each rank trains for itself; a loss is averaged in each step
//   benchmark, benchmark-pairs  no training: a call of each size again and again
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <string>

#include "tests/e2e/programs/strangers/mini.h"

namespace {

using namespace strangers;

constexpr int kSteps = 30;
constexpr int kLayers = 6;
constexpr size_t kWeights = size_t{1} << 20;      // of a layer
constexpr size_t kActivations = size_t{1} << 18;  // of a layer
constexpr int kValues = 1 << 16;

// Ranks that communicate. Calls take and give what all of them together have.
class Group {
 public:
  Group(const Rank& rank, int color, int ranks) : ranks_(static_cast<size_t>(ranks)) {
    CHECK_NCCL(ncclCommSplit(rank.world, color, rank.id.rank, &comm_, nullptr));
  }
  ~Group() { ncclCommDestroy(comm_); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void Reduce(float* data, size_t n, cudaStream_t stream) const {
    CHECK_NCCL(ncclAllReduce(data, data, n, ncclFloat, ncclSum, comm_, stream));
  }
  void Gather(float* data, size_t n, cudaStream_t stream) const {
    CHECK_NCCL(ncclAllGather(data, data, n / ranks_, ncclFloat, comm_, stream));
  }
  void Scatter(float* data, size_t n, cudaStream_t stream) const {
    CHECK_NCCL(ncclReduceScatter(data, data, n / ranks_, ncclFloat, ncclSum, comm_, stream));
  }
  void Broadcast(float* data, size_t n, cudaStream_t stream) const {
    for (size_t root = 0; root < ranks_; ++root)
      CHECK_NCCL(ncclBroadcast(data, data, n / ranks_, ncclFloat, static_cast<int>(root), comm_, stream));
  }

 private:
  ncclComm_t comm_ = nullptr;
  size_t ranks_;
};

struct Training {
  explicit Training(const char* name) : kind(name) {}

  std::string kind;
  Rank rank;
  float* weights = Floats(kLayers * kWeights);
  float* gradients = Floats(kLayers * kWeights);
  float* activations = Floats(4 * kActivations);
  // Neighbours, and those that are at the same place in their pair.
  Group pair = Group(rank, rank.id.rank / 2, 2);
  Group across = Group(rank, rank.id.rank % 2, (rank.id.world_size + 1) / 2);
  Group all = Group(rank, 0, rank.id.world_size);
  Group loss = Group(rank, 0, rank.id.world_size);

  bool Is(const char* prefix) const { return kind.rfind(prefix, 0) == 0; }
  float* WeightsOf(int layer) const { return weights + kWeights * static_cast<size_t>(layer); }
  float* GradientsOf(int layer) const { return gradients + kWeights * static_cast<size_t>(layer); }

  void Forward() const {
    Run(kind == "fsdp-silent" ? ExpertGemm : MatmulForward, activations, kValues, rank.compute);
  }
  void Backward() const {
    Run(kind == "fsdp-silent" ? ExpertGemm : MatmulBackward, gradients, kValues, rank.compute);
  }
  // Half a layer's calls inside it.
  void Inside(bool forward) const {
    if (Is("tensor")) all.Reduce(activations, kActivations, rank.compute);
    if (Is("grid")) pair.Reduce(activations, kActivations, rank.compute);
    if (Is("sequence")) {
      pair.Scatter(activations, kActivations, rank.compute);
      if (!forward) pair.Gather(activations, kActivations, rank.compute);
    }
    if (Is("experts")) Exchange();
    if (Is("ring")) PassRound();
    if (kind == "ddp-norms" && forward) all.Gather(activations, 8192, rank.compute);
    if (kind == "ddp-norms" && !forward) all.Reduce(activations, 8192, rank.compute);
  }
  void Exchange() const {
    const size_t part = kActivations / static_cast<size_t>(rank.id.world_size);
    CHECK_NCCL(ncclGroupStart());
    for (int peer = 0; peer < rank.id.world_size; ++peer) {
      rank.Send(activations, part, peer, rank.compute);
      rank.Receive(activations + kActivations, part, peer, rank.compute);
    }
    CHECK_NCCL(ncclGroupEnd());
  }
  void PassRound() const {
    const int ranks = rank.id.world_size;
    CHECK_NCCL(ncclGroupStart());
    rank.Send(activations, kActivations, (rank.id.rank + 1) % ranks, rank.compute);
    rank.Receive(activations + kActivations, kActivations, (rank.id.rank + ranks - 1) % ranks, rank.compute);
    CHECK_NCCL(ncclGroupEnd());
  }
  const Group& shards() const { return Is("hsdp") ? pair : all; }
  bool sharded() const { return Is("fsdp") || Is("hsdp") || Is("ring"); }
  void GatherWeights(int layer) const {
    if (!sharded()) return;
    shards().Gather(WeightsOf(layer), kWeights, rank.link);
    rank.Order(rank.link, rank.compute);
  }
  void Layer(int layer, bool forward) const {
    GatherWeights(layer);
    for (int part = 0; part < 2; ++part) {
      if (Is("sequence") && forward) pair.Gather(activations, kActivations, rank.compute);
      forward ? Forward() : Backward();
      Inside(forward);
    }
  }
  void ForwardPass() const {
    if (kind == "ddp-counts")
      all.Gather(activations, 4 * static_cast<size_t>(rank.id.world_size), rank.compute);
    for (int layer = 0; layer < kLayers; ++layer) Layer(layer, true);
    if (kind == "ddp-counts" || kind == "fsdp-loss" || kind == "alone" || Is("grid"))
      loss.Reduce(activations, 1, rank.compute);
  }
  void BackwardPass() const {
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      Layer(layer, false);
      rank.Order(rank.compute, rank.link);
      float* const data = GradientsOf(layer);
      if (Is("ddp") || Is("experts") || kind == "zero1-ddp") all.Reduce(data, kWeights, rank.link);
      if (Is("grid") || Is("sequence")) across.Reduce(data, kWeights / 2, rank.link);
      if (sharded()) shards().Scatter(data, kWeights, rank.link);
      if (Is("hsdp")) across.Reduce(data, kWeights / 2, rank.link);
      if (Is("zero2")) all.Scatter(data, kWeights, rank.link);
    }
    rank.Order(rank.link, rank.compute);
  }
  void Update() const {
    if (kind == "zero1") all.Reduce(gradients, kLayers * kWeights, rank.compute);
    if (kind == "fsdp-norms") all.Reduce(gradients, 16384, rank.compute);
    if (Is("grid")) loss.Reduce(gradients, 1, rank.compute);
    for (int layer = 0; layer < kLayers; ++layer) Run(AdamUpdate, weights, kValues, rank.compute);
    if (kind == "zero1-ddp") all.Broadcast(weights, kLayers * kWeights, rank.compute);
    if (kind != "zero1" && !Is("zero2")) return;
    for (int layer = 0; layer < kLayers; ++layer) {
      all.Gather(WeightsOf(layer), kWeights, rank.compute);
      if (kind == "zero2-copies")
        CHECK_CUDA(cudaMemcpyAsync(activations, weights, 4096, cudaMemcpyDeviceToDevice, rank.compute));
      if (kind == "zero2-copies") Run(ExpertGemm, activations, 256, rank.compute);
    }
  }
  void Step() const {
    const int batches = kind == "fsdp-accumulates" ? 2 : kind == "zero2-accumulates" ? 4 : 1;
    for (int batch = 0; batch < batches; ++batch) {
      if (batches > 1) nvtxRangePushA("forward");  // no kernel's name tells where the second one begins
      ForwardPass();
      if (batches > 1) nvtxRangePop(), nvtxRangePushA("backward");
      BackwardPass();
      if (batches > 1) nvtxRangePop();
    }
    Update();
  }
  void Evaluate() const {
    for (int batch = 0; batch < 3; ++batch) {
      ForwardPass();
      all.Gather(activations, kActivations, rank.compute);
    }
    CHECK_CUDA(cudaStreamSynchronize(rank.compute));
  }
  // Two micro-batches through two stages; the gradients of each are reduced between the ranks of a stage.
  void PipelineStep() const {
    const int other = (rank.id.rank + 2) % 4;
    const bool first = rank.id.rank < 2;
    const auto pass = [&](bool forward) {
      if (first != forward) rank.Receive(activations, kActivations, other, rank.compute);
      for (int layer = 0; layer < kLayers; ++layer) forward ? Forward() : Backward();
      if (first == forward) rank.Send(activations, kActivations, other, rank.compute);
    };
    for (int batch = 0; batch < 2; ++batch) {
      pass(true);
      pass(false);
    }
    pair.Reduce(gradients, kLayers * kWeights, rank.compute);
    Update();
  }
  void Benchmark() const {
    for (size_t n = 1024; n <= kWeights; n *= 4) {
      for (int i = 0; i < 40; ++i) kind == "benchmark" ? all.Reduce(weights, n, rank.compute) : PassRound();
      Run(ExpertGemm, weights, kValues, rank.compute);  // checks the result
      CHECK_CUDA(cudaStreamSynchronize(rank.compute));
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: parallelism KIND\n");
    return 2;
  }
  const Training training(argv[1]);
  if (training.Is("benchmark")) {
    training.Benchmark();
  } else {
    for (int step = 0; step < kSteps; ++step) {
      training.kind == "pipeline" ? training.PipelineStep() : training.Step();
      if (training.kind == "ddp-evaluation" && step % 5 == 4) training.Evaluate();
    }
  }
  training.rank.Finish();
  return 0;
}
