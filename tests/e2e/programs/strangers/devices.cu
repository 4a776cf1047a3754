// One process that drives several GPUs. `devices SITUATION [VALUE]`:
//   one-thread           data-parallel, one host thread, communicators of ncclCommInitAll
//   threads              the same with a thread for each GPU, which makes its own calls
//   slow FACTOR          threads, and the kernels of GPU 2 take so much longer
//   input MS             threads, and the batches of GPU 1 come late
//   gather               replicas are made from GPU 0, which also gathers their outputs and updates the
//                        weights
//   one-used MIB         opens all GPUs, holds so much on each, and computes on GPU 0
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"

namespace {

__global__ void GemmForward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void GemmBackward(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void GatherLoss(float* data) { data[threadIdx.x] += 1.0F; }
__global__ void FusedAdam(float* data) { data[threadIdx.x] += 1.0F; }

constexpr size_t kCount = 1 << 20;
constexpr int kSteps = 60;
constexpr int kLayers = 4;

void SetPace(double kernels) {
  using Function = void (*)(double, double, double);
  static const auto set = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gpusim_set_pace"));
  if (set == nullptr) {
    std::fprintf(stderr, "devices: not on the simulated node\n");
    std::exit(2);
  }
  set(kernels, 1, 1);
}

struct Gpu {
  int ordinal = 0;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  float* weights = nullptr;
  float* host = nullptr;
  double pace = 1;

  explicit Gpu(int number) : ordinal(number) {
    CHECK_CUDA(cudaSetDevice(ordinal));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&weights, kCount * sizeof(float)));
    CHECK_CUDA(cudaMallocHost(&host, kCount));
  }
  void Use() const { CHECK_CUDA(cudaSetDevice(ordinal)); }
  template <typename Kernel>
  void Run(Kernel kernel) const {
    static std::mutex mutex;  // the node's pace is the process's
    const std::scoped_lock lock(mutex);
    if (pace != 1) SetPace(pace);
    kernel<<<132, 256, 0, stream>>>(weights);
    CHECK_CUDA(cudaGetLastError());
    if (pace != 1) SetPace(1);
  }
  void Load() const { CHECK_CUDA(cudaMemcpyAsync(weights, host, kCount, cudaMemcpyHostToDevice, stream)); }
  void Reduce() const {
    CHECK_NCCL(ncclAllReduce(weights, weights, kCount / 4, ncclFloat, ncclSum, comm, stream));
  }
  void Wait() const { CHECK_CUDA(cudaStreamSynchronize(stream)); }
};

using Gpus = std::vector<Gpu>;

void JoinAll(Gpus& gpus) {
  std::vector<ncclComm_t> comms(gpus.size());
  CHECK_NCCL(ncclCommInitAll(comms.data(), static_cast<int>(gpus.size()), nullptr));
  for (Gpu& gpu : gpus) gpu.comm = comms[static_cast<size_t>(gpu.ordinal)];
}

void LeaveAll(const Gpus& gpus) {
  for (const Gpu& gpu : gpus) CHECK_NCCL(ncclCommDestroy(gpu.comm));
}

void OnEach(const Gpus& gpus, const std::function<void(const Gpu&)>& work) {
  for (const Gpu& gpu : gpus) {
    gpu.Use();
    work(gpu);
  }
}

void OneThread(const Gpus& gpus) {
  for (int step = 0; step < kSteps; ++step) {
    OnEach(gpus, [](const Gpu& gpu) { gpu.Load(); });
    for (int layer = 0; layer < kLayers; ++layer) OnEach(gpus, [](const Gpu& gpu) { gpu.Run(GemmForward); });
    for (int layer = 0; layer < kLayers; ++layer) {
      OnEach(gpus, [](const Gpu& gpu) { gpu.Run(GemmBackward); });
      CHECK_NCCL(ncclGroupStart());
      OnEach(gpus, [](const Gpu& gpu) { gpu.Reduce(); });
      CHECK_NCCL(ncclGroupEnd());
    }
    OnEach(gpus, [](const Gpu& gpu) { gpu.Run(FusedAdam); });
    OnEach(gpus, [](const Gpu& gpu) { gpu.Wait(); });
  }
}

void Threads(const Gpus& gpus, double input_ms) {
  std::vector<std::thread> threads;
  for (const Gpu& each : gpus) {
    threads.emplace_back([gpu = each, input_ms] {
      gpu.Use();
      for (int step = 0; step < kSteps; ++step) {
        if (gpu.ordinal == 1 && input_ms > 0)
          std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(input_ms));
        gpu.Load();
        for (int layer = 0; layer < kLayers; ++layer) gpu.Run(GemmForward);
        for (int layer = 0; layer < kLayers; ++layer) {
          gpu.Run(GemmBackward);
          gpu.Reduce();
        }
        gpu.Run(FusedAdam);
        gpu.Wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// As torch.nn.DataParallel: everything but the layers happens on the first GPU.
void Gathered(const Gpus& gpus) {
  const Gpu& first = gpus.front();
  const auto copy = [&first](const Gpu& to, const Gpu& from) {
    if (to.ordinal == from.ordinal) return;
    CHECK_CUDA(cudaMemcpyPeerAsync(to.weights, to.ordinal, from.weights, from.ordinal, kCount, from.stream));
  };
  const auto wait = [](const Gpu& gpu) { gpu.Wait(); };
  for (int step = 0; step < kSteps; ++step) {
    first.Use();
    first.Load();
    for (const Gpu& gpu : gpus) copy(gpu, first);
    first.Wait();
    for (int layer = 0; layer < kLayers; ++layer) OnEach(gpus, [](const Gpu& gpu) { gpu.Run(GemmForward); });
    OnEach(gpus, [&](const Gpu& gpu) { copy(first, gpu); });
    OnEach(gpus, wait);
    first.Use();
    first.Run(GatherLoss);
    first.Wait();
    for (int layer = 0; layer < kLayers; ++layer) OnEach(gpus, [](const Gpu& gpu) { gpu.Run(GemmBackward); });
    OnEach(gpus, [&](const Gpu& gpu) { copy(first, gpu); });
    OnEach(gpus, wait);
    first.Use();
    for (int layer = 0; layer < kLayers; ++layer) first.Run(FusedAdam);
    first.Wait();
  }
}

void OneUsed(const Gpus& gpus, size_t bytes) {
  OnEach(gpus, [bytes](const Gpu&) {
    void* reserved = nullptr;
    CHECK_CUDA(cudaMalloc(&reserved, bytes));
  });
  const Gpu& first = gpus.front();
  first.Use();
  for (int step = 0; step < kSteps; ++step) {
    first.Load();
    for (int layer = 0; layer < kLayers; ++layer) first.Run(GemmForward);
    for (int layer = 0; layer < kLayers; ++layer) first.Run(GemmBackward);
    first.Run(FusedAdam);
    first.Wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string situation = argc > 1 ? argv[1] : "one-thread";
  const double value = argc > 2 ? std::atof(argv[2]) : 0;
  int count = 0;
  CHECK_CUDA(cudaGetDeviceCount(&count));
  Gpus gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) gpus.emplace_back(ordinal);
  if (situation == "gather") {
    Gathered(gpus);
  } else if (situation == "one-used") {
    OneUsed(gpus, static_cast<size_t>(value) << 20);
  } else {
    JoinAll(gpus);
    if (situation == "slow") gpus[2].pace = value;
    if (situation == "one-thread") {
      OneThread(gpus);
    } else {
      Threads(gpus, situation == "input" ? value : 0);
    }
    LeaveAll(gpus);
  }
  return 0;
}
