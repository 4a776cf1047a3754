// A small job in one situation in which ranks differ. `ranks SITUATION [VALUE]`:
//   even                 nothing
//   input MS, host MS    the last rank's batch comes late; its host is busy in the middle of forward
//   checkpoint EVERY     rank 0 alone writes for 60 ms after each such step
//   bursts EVERY         rank 0 is 8 ms late in half of each such period
//   irregular            rank 0 is 60 ms late in a few steps
//   grows FACTOR         GemmExpert takes so much longer on rank 1, with the same grid
//   slow FACTOR          every kernel does
//   stage CALLS          a pipeline whose last stage launches so many GemmHead for each microbatch
//   elsewhere MIB        every rank allocates so much on GPU 0 before it takes its own
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

__global__ void GemmForward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void GemmBackward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void GemmExpert(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void GemmHead(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void FusedAdam(float* data) { data[threadIdx.x] += 1.0F; }

constexpr size_t kCount = 1 << 20;
constexpr int kSteps = 60;
constexpr int kLayers = 4;

void Sleep(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

void SetPace(double kernels) {
  using Function = void (*)(double, double, double);
  static const auto set = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gpusim_set_pace"));
  if (set == nullptr) {
    std::fprintf(stderr, "ranks: not on the simulated node\n");
    std::exit(2);
  }
  set(kernels, 1, 1);
}

struct Job {
  gpuprobe::samples::RankIdentity id;
  std::string situation;
  double value = 0;
  ncclComm_t world = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
  float* host = nullptr;

  bool Is(const char* what) const { return situation == what; }
  bool IsLast() const { return id.rank == id.world_size - 1; }
  template <typename Kernel>
  void Run(Kernel kernel) {
    kernel<<<132, 256, 0, stream>>>(data);
    CHECK_CUDA(cudaGetLastError());
  }

  void Expert() {
    if (Is("grows") && id.rank == 1) SetPace(value);
    Run(GemmExpert);
    if (Is("grows") && id.rank == 1) SetPace(1);
  }

  void DataParallelStep(int step) {
    const auto every = static_cast<int>(value);
    if (Is("input") && IsLast()) Sleep(value);
    if (Is("bursts") && id.rank == 0 && step % every >= every / 2) Sleep(8);
    CHECK_CUDA(cudaMemcpyAsync(data, host, kCount, cudaMemcpyHostToDevice, stream));
    for (int layer = 0; layer < kLayers; ++layer) {
      Run(GemmForward);
      Expert();
    }
    if (Is("host") && IsLast()) {
      CHECK_CUDA(cudaStreamSynchronize(stream));
      Sleep(value);
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      Run(GemmBackward);
      CHECK_NCCL(ncclAllReduce(data, data, kCount / 4, ncclFloat, ncclSum, world, stream));
    }
    Run(FusedAdam);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const bool irregular = Is("irregular") && (step == 9 || step == 14 || step == 31 || step == 50);
    if (id.rank == 0 && (irregular || (Is("checkpoint") && step % every == every - 1))) Sleep(60);
  }

  void PipelineStep() {
    constexpr int kMicrobatches = 4;
    const auto head = [&] {
      for (int i = 0; IsLast() && i < static_cast<int>(value); ++i) Run(GemmHead);
    };
    for (int i = 0; i < kMicrobatches; ++i) {
      if (id.rank > 0) CHECK_NCCL(ncclRecv(data, kCount / 4, ncclFloat, id.rank - 1, world, stream));
      Run(GemmForward);
      head();
      if (!IsLast()) CHECK_NCCL(ncclSend(data, kCount / 4, ncclFloat, id.rank + 1, world, stream));
    }
    for (int i = 0; i < kMicrobatches; ++i) {
      if (!IsLast()) CHECK_NCCL(ncclRecv(data, kCount / 4, ncclFloat, id.rank + 1, world, stream));
      head();
      Run(GemmBackward);
      if (id.rank > 0) CHECK_NCCL(ncclSend(data, kCount / 4, ncclFloat, id.rank - 1, world, stream));
    }
    Run(FusedAdam);
  }
};

}  // namespace

int main(int argc, char** argv) {
  Job job;
  job.id = gpuprobe::samples::FindRankIdentity();
  job.situation = argc > 1 ? argv[1] : "even";
  job.value = argc > 2 ? std::atof(argv[2]) : 0;
  if (job.Is("elsewhere")) {
    void* stray = nullptr;
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&stray, static_cast<size_t>(job.value) << 20));
  }
  gpuprobe::samples::ChooseDevice(job.id);
  CHECK_CUDA(cudaStreamCreateWithFlags(&job.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&job.data, kCount * sizeof(float)));
  CHECK_CUDA(cudaMallocHost(&job.host, kCount));
  job.world = gpuprobe::samples::JoinWorld(job.id, "");
  if (job.Is("slow") && job.id.rank == 1) SetPace(job.value);
  for (int step = 0; step < kSteps; ++step) {
    if (job.Is("stage")) {
      job.PipelineStep();
    } else {
      job.DataParallelStep(step);
    }
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_NCCL(ncclCommDestroy(job.world));
  return 0;
}
