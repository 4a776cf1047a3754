// Stands in for samples/gpu_check/torch_workload.py on the simulated node: the same options, the same last
// line, work whose kernels and copies can be counted. With --profile it says, as torch.profiler would, what
// it launched.
//
// usage: torch_stand_in --mode eager|compiled|graphs --steps N [--profile]

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "samples/common/check.h"

namespace {

constexpr int kWarmUp = 4;
constexpr int kKernels = 3;  // of a step
constexpr size_t kBytes = size_t{1} << 20;

__global__ void Layer(float* values) { values[threadIdx.x] *= 2; }

void Train(float* values, cudaStream_t stream) {
  for (int i = 0; i < kKernels; ++i) Layer<<<1, 32, 0, stream>>>(values);
}

const char* OptionOf(int argc, char** argv, const char* name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = std::atoi(OptionOf(argc, argv, "--steps"));
  const bool graphs = std::strcmp(OptionOf(argc, argv, "--mode"), "graphs") == 0;
  const bool profile = std::strcmp(argv[argc - 1], "--profile") == 0;
  float* values = nullptr;
  void* host = nullptr;
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&values), kBytes));
  CHECK_CUDA(cudaMallocHost(&host, kBytes));
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraphExec_t exec = nullptr;
  if (graphs) {
    cudaGraph_t graph = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Train(values, stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  }
  std::printf("{\"mode\": \"%s\", \"steps\": %d, \"step_s\": [", graphs ? "graphs" : "other", steps);
  for (int step = -kWarmUp; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_CUDA(cudaMemcpyAsync(values, host, kBytes, cudaMemcpyHostToDevice, stream));
    if (graphs) {
      CHECK_CUDA(cudaGraphLaunch(exec, stream));
    } else {
      Train(values, stream);
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (step >= 0) std::printf("%s%.9f", step == 0 ? "" : ", ", took.count());
  }
  std::printf("], ");
  if (profile) std::printf("\"kernels\": %d, \"copies\": %d, ", steps * kKernels, steps);
  std::printf("\"peak_allocated_bytes\": %zu, \"peak_reserved_bytes\": %zu}\n", kBytes, kBytes);
  return 0;
}
