// How training loops of strangers look: what they do besides steps of equal kernels. Every shape has as many
// steps as the optimizer has turns. `strangers_loops SHAPE [STEPS]`
//   plain            forward, backward, one reduction, an optimizer
//   evaluates_first  rank 0 runs 200 batches forward before the first step
//   all_evaluate     every rank does, and again every 20th step
//   sets_up_layers   layers are made and filled one after another, as if each was a step
//   sanity_check     two batches forward before the first step, as Lightning does
//   accumulates      four batches before each update
//   clips            the norm of the gradients, by the optimizer's kernels, before the update
//   updates_layers   each layer is updated in the backward pass as soon as its gradient is there
//   generates        rollouts of different lengths before each step
//   unnamed          evaluates first, and nothing has a name
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/e2e/programs/strangers/mini.h"

namespace {

using strangers::Rank;
using strangers::Run;

__global__ void Fill(float* data, int n) {
  if (threadIdx.x < n) data[threadIdx.x] = 0;
}
__global__ void Norm(float* data, int n) {
  if (threadIdx.x < n) data[threadIdx.x] += 1;
}
__global__ void Sample(float* data, int n) {
  if (threadIdx.x < n) data[threadIdx.x] += 1;
}
__global__ void Fused(float* data, int n) {
  if (threadIdx.x < n) data[threadIdx.x] += 1;
}

constexpr int kLayers = 8;
constexpr int kCount = 1 << 16;

class Loop {
 public:
  explicit Loop(std::string shape) : shape_(std::move(shape)) {
    data_ = strangers::Floats(kCount);
    CHECK_CUDA(cudaMallocHost(&batch_, kCount * sizeof(float)));
  }

  void Before() {
    if (Is("sets_up_layers")) {
      for (int layer = 0; layer < 40; ++layer) {
        NextBatch();
        for (int i = 0; i < kLayers; ++i) Run(Fill, data_, kCount, rank_.compute);
        Run(Sample, data_, kCount, rank_.compute);
      }
    }
    if (Is("sanity_check")) Evaluate(2);
    if (Is("all_evaluate") || Is("unnamed") || (Is("evaluates_first") && rank_.id.rank == 0)) Evaluate(200);
  }

  void Step(int step) {
    if (Is("all_evaluate") && step % 20 == 19) Evaluate(30);
    if (Is("generates")) {
      for (int i = 0; i < 40 + 7 * (step % 5); ++i) Run(Sample, data_, kCount, rank_.compute);
    }
    for (int batch = 0; batch < (Is("accumulates") ? 4 : 1); ++batch) {
      NextBatch();
      Forward();
      for (int i = 0; i < kLayers; ++i) {
        Run(strangers::MatmulBackward, data_, kCount, rank_.compute);
        if (Is("updates_layers")) Run(strangers::AdamUpdate, data_, kCount, rank_.compute);
      }
    }
    rank_.Reduce(data_, kCount, rank_.compute);
    if (Is("clips")) {
      Run(strangers::AdamUpdate, data_, kCount, rank_.compute);
      for (int i = 0; i < 6; ++i) Run(Norm, data_, kCount, rank_.compute);
    }
    if (Is("unnamed")) {
      Run(Norm, data_, kCount, rank_.compute);
    } else if (!Is("updates_layers")) {
      for (int i = 0; i < 3; ++i) Run(strangers::AdamUpdate, data_, kCount, rank_.compute);
    }
    if (step % 10 == 0) Read();
  }

  void Finish() { rank_.Finish(); }

 private:
  bool Is(const char* shape) const { return shape_ == shape; }

  void NextBatch() {
    CHECK_CUDA(cudaMemcpyAsync(data_, batch_, kCount * sizeof(float), cudaMemcpyHostToDevice, rank_.compute));
  }
  void Forward() {
    for (int i = 0; i < kLayers; ++i) {
      Run(strangers::MatmulForward, data_, kCount, rank_.compute);
      Run(Fused, data_, kCount, rank_.compute);
    }
  }
  void Evaluate(int batches) {
    for (int batch = 0; batch < batches; ++batch) {
      NextBatch();
      Forward();
      Read();
    }
  }
  void Read() {
    float value = 0;
    CHECK_CUDA(cudaMemcpyAsync(&value, data_, sizeof value, cudaMemcpyDeviceToHost, rank_.compute));
    CHECK_CUDA(cudaStreamSynchronize(rank_.compute));
  }

  const std::string shape_;
  Rank rank_;
  float* data_ = nullptr;
  float* batch_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: strangers_loops SHAPE [STEPS]\n");
    return 2;
  }
  const int steps = argc > 2 ? std::atoi(argv[2]) : 60;
  Loop loop(argv[1]);
  loop.Before();
  for (int step = 0; step < steps; ++step) loop.Step(step);
  loop.Finish();
  return 0;
}
