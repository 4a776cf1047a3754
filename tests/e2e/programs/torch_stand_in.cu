// Stands in for samples/gpu_check/torch_workload.py and torch_adds.py on the simulated node: the same
// options, the same last line, work whose kernels and copies can be counted. With --profile it says, as
// torch.profiler would, what it launched.
//
// usage: torch_stand_in --mode eager|compiled|graphs --steps N [--sessions N] [--profile]
//        torch_stand_in --launches N --repetitions N

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/range.h"

namespace {

using Clock = std::chrono::steady_clock;

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

struct Options {
  int steps = 0;
  bool graphs = false;
  bool profile = false;
  int launches = 0;
  int repetitions = 0;
};

struct Job {
  float* values = nullptr;
  void* host = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;  // with --mode graphs
};

Job MakeJob(const Options& options) {
  Job job;
  CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&job.values), kBytes));
  CHECK_CUDA(cudaMallocHost(&job.host, kBytes));
  CHECK_CUDA(cudaStreamCreate(&job.stream));
  if (options.graphs) {
    cudaGraph_t graph = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(job.stream, cudaStreamCaptureModeThreadLocal));
    Train(job.values, job.stream);
    CHECK_CUDA(cudaStreamEndCapture(job.stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&job.graph, graph, 0));
  }
  return job;
}

void Step(const Job& job) {
  const gpuprobe::samples::Range range("step", true);
  CHECK_CUDA(cudaMemcpyAsync(job.values, job.host, kBytes, cudaMemcpyHostToDevice, job.stream));
  if (job.graph != nullptr) {
    CHECK_CUDA(cudaGraphLaunch(job.graph, job.stream));
  } else {
    Train(job.values, job.stream);
  }
  CHECK_CUDA(cudaStreamSynchronize(job.stream));
}

void RunSteps(const Job& job, const Options& options) {
  std::printf("{\"mode\": \"%s\", \"steps\": %d, \"step_s\": [", options.graphs ? "graphs" : "other",
              options.steps);
  for (int step = -kWarmUp; step < options.steps; ++step) {
    const Clock::time_point begin = Clock::now();
    Step(job);
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (step >= 0) std::printf("%s%.9f", step == 0 ? "" : ", ", took.count());
  }
  std::printf("], ");
  if (options.profile)
    std::printf("\"kernels\": %d, \"copies\": %d, ", options.steps * kKernels, options.steps);
  std::printf("\"peak_allocated_bytes\": %zu, \"peak_reserved_bytes\": %zu}\n", kBytes, kBytes);
}

void RunLaunches(const Job& job, const Options& options) {
  std::vector<double> launch_us;
  for (int i = 0; i < options.repetitions; ++i) {
    const Clock::time_point begin = Clock::now();
    for (int k = 0; k < options.launches; ++k) Layer<<<1, 32, 0, job.stream>>>(job.values);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    launch_us.push_back(took.count() / options.launches);
    CHECK_CUDA(cudaStreamSynchronize(job.stream));
  }
  std::sort(launch_us.begin(), launch_us.end());
  std::printf("{\"best_us\": %.3f, \"median_us\": %.3f, \"worst_us\": %.3f}\n", launch_us.front(),
              launch_us[launch_us.size() / 2], launch_us.back());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.steps = std::atoi(OptionOf(argc, argv, "--steps"));
  options.graphs = std::strcmp(OptionOf(argc, argv, "--mode"), "graphs") == 0;
  options.profile = std::strcmp(argv[argc - 1], "--profile") == 0;
  options.launches = std::atoi(OptionOf(argc, argv, "--launches"));
  options.repetitions = std::atoi(OptionOf(argc, argv, "--repetitions"));
  const Job job = MakeJob(options);
  if (options.repetitions > 0) {
    RunLaunches(job, options);
  } else {
    RunSteps(job, options);
  }
  return 0;
}
