// A data-parallel loop of plain kernels and collectives, and what hosts do between their launches: the
// situations are those of public bug reports. `strangers_steps SITUATION [STEPS]`
//   read_value     a loss is read by a copy that blocks, and the optimizer is launched 4 ms later
//   read_at_end    the loss is read at the end, and the next step follows at once
//   epochs         every 20th batch comes 200 ms late
//   late_batch     every batch comes 8 ms late, and a loss was read before
//   late_range     the same without a copy: it is in memory that the device reads; a range says `next_batch`
//   silent         the host is away for 8 ms in each step, and nothing says why
//   write_out      weights are copied to the host in each step, and 8 ms pass
//   checkpoints    the same every 20th step, for 150 ms, on rank 0 only
//   empty_cache    memory is given back to the driver in each step, and taken again
//   few_allocations  it is taken once a step, and the batch comes 8 ms late
//   launches       300 kernels of 3 us a step, 30 us apart
//   busy_cores     four processes for each rank want its processor
//   evaluation     every 20th step, 40 kernels more
//   more_each_step  the host is away for 100 us more in each step
//   longer         kernels have more threads in each step, and take 2 % longer
//   hotter         kernels take 2 % longer in each step, and have the same threads
//   steady         nothing of this
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

__global__ void Forward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void Backward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void Adam(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void Tiny(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void Evaluate(float* data) { data[threadIdx.x] += 1.0F; }

constexpr int kLayers = 6;
constexpr int kEvery = 20;
constexpr size_t kBytes = size_t{8} << 20;

void Pass(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

void Spin(double ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// How much longer the node's kernels take from now on.
void SetPace(double kernels) {
  using Function = void (*)(double, double, double);
  static const auto set = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gpusim_set_pace"));
  if (set != nullptr) set(kernels, 1, 1);
}

// They end with this process, or after half a minute.
void OccupyCores(int processes) {
  for (int i = 0; i < processes; ++i) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(30);
    while (true) Spin(1000);
  }
}

class Loop {
 public:
  Loop(std::string situation, int rank, ncclComm_t world)
      : situation_(std::move(situation)), rank_(rank), world_(world) {
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMallocHost(&batch_, kBytes));
    CHECK_CUDA(cudaMallocHost(&saved_, kBytes));
    for (float** memory : {&input_, &weights_, &gradients_}) CHECK_CUDA(cudaMalloc(memory, kBytes));
  }

  void Step(int step) {
    const bool special = step % kEvery == kEvery - 1;
    NextBatch(special);
    if (Is("more_each_step")) Pass(0.1 * step);  // nothing runs on the device
    if (Is("longer") || Is("hotter")) SetPace(1 + 0.02 * step);
    const unsigned blocks = Is("longer") ? 64U + static_cast<unsigned>(step) : 64U;
    for (int i = 0; i < (Is("launches") ? 0 : kLayers); ++i) Forward<<<blocks, 256, 0, stream_>>>(input_);
    if (Is("launches")) {
      for (int i = 0; i < 300; ++i) {
        Tiny<<<1, 256, 0, stream_>>>(input_);
        Spin(0.03);
      }
    }
    if (Is("silent")) Pass(8);
    if (Is("busy_cores")) Spin(1);
    for (int i = 0; i < (Is("launches") ? 0 : kLayers); ++i)
      Backward<<<blocks, 256, 0, stream_>>>(gradients_);
    CHECK_NCCL(
        ncclAllReduce(gradients_, gradients_, kBytes / sizeof(float), ncclFloat, ncclAvg, world_, stream_));
    if (Is("read_value")) {
      ReadLoss();
      Pass(4);
    }
    for (int i = 0; i < 2; ++i) Adam<<<64, 256, 0, stream_>>>(weights_);
    End(special);
  }

  void Finish() {
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_NCCL(ncclCommDestroy(world_));
  }

 private:
  bool Is(const char* situation) const { return situation_ == situation; }

  void NextBatch(bool special) {
    if (Is("epochs") && special) Pass(200);
    if (Is("late_batch") || Is("few_allocations")) Pass(8);
    if (Is("late_range")) {
      nvtxRangePushA("next_batch");
      Pass(8);
      nvtxRangePop();
      return;
    }
    if (Is("few_allocations")) {
      void* memory = nullptr;
      CHECK_CUDA(cudaMalloc(&memory, kBytes));
      CHECK_CUDA(cudaFree(memory));
    }
    CHECK_CUDA(cudaMemcpyAsync(input_, batch_, kBytes / 2, cudaMemcpyHostToDevice, stream_));
  }

  void ReadLoss() {
    float loss = 0;
    CHECK_CUDA(cudaMemcpyAsync(&loss, weights_, sizeof loss, cudaMemcpyDeviceToHost, stream_));
  }

  void WriteOut(double ms) {
    CHECK_CUDA(cudaMemcpyAsync(saved_, weights_, kBytes, cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    Pass(ms);
  }

  void End(bool special) {
    if (Is("evaluation") && special) {
      for (int i = 0; i < 40; ++i) Evaluate<<<64, 256, 0, stream_>>>(input_);
    }
    if (Is("read_at_end") || Is("late_batch") || Is("few_allocations")) ReadLoss();
    if (Is("more_each_step") || Is("longer") || Is("hotter") || Is("late_range") || Is("busy_cores") ||
        Is("epochs") || Is("silent") || Is("evaluation"))
      CHECK_CUDA(cudaStreamSynchronize(stream_));
    if (Is("write_out")) WriteOut(8);
    if (Is("checkpoints") && special && rank_ == 0) WriteOut(150);
    if (Is("empty_cache")) {
      for (int i = 0; i < 300; ++i) {
        CHECK_CUDA(cudaFree(gradients_));
        CHECK_CUDA(cudaMalloc(&gradients_, kBytes));
      }
    }
  }

  const std::string situation_;
  const int rank_;
  ncclComm_t world_;
  cudaStream_t stream_ = nullptr;
  float* batch_ = nullptr;
  float* saved_ = nullptr;
  float* input_ = nullptr;
  float* weights_ = nullptr;
  float* gradients_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: strangers_steps SITUATION [STEPS]\n");
    return 2;
  }
  const std::string situation = argv[1];
  const int steps = argc > 2 ? std::atoi(argv[2]) : 60;
  if (situation == "busy_cores") OccupyCores(4);
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(identity);
  Loop loop(situation, identity.rank, gpuprobe::samples::JoinWorld(identity, ""));
  for (int step = 0; step < steps; ++step) loop.Step(step);
  loop.Finish();
  return 0;
}
