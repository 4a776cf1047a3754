// Trains nothing, as an eager framework would: `eager_steps STEPS`. A step launches 242 kernels of sixteen
// names from one thread, copies once on the device, and waits in every tenth step. Prints as JSON what the
// steps took: wall time, and CPU time and context switches of the program's threads, of the simulated node's
// and of the probe's.
#include <cuda_runtime.h>
#include <dirent.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "samples/common/check.h"

namespace {

constexpr int kNames = 16;
constexpr int kLaunches = 242;
constexpr int kWarmupSteps = 40;

template <int kName>
__global__ void Operator(float* values, int count, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = values[i] * factor + kName;
}

using Kernel = void (*)(float*, int, float);

template <int... kEach>
const Kernel* Operators(std::integer_sequence<int, kEach...> /*names*/) {
  static const Kernel kernels[] = {Operator<kEach>...};
  return kernels;
}

void Train(long steps, float* values, cudaStream_t stream) {
  const Kernel* kernels = Operators(std::make_integer_sequence<int, kNames>());
  int count = 1 << 16;
  float factor = 0.5F;
  void* arguments[] = {&values, &count, &factor};
  for (long step = 0; step < steps; ++step) {
    for (int i = 0; i < kLaunches; ++i)
      CHECK_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernels[i % kNames]), dim3(256), dim3(256),
                                  arguments, 0, stream));
    CHECK_CUDA(cudaMemcpyAsync(values, values + 1024, 1024, cudaMemcpyDeviceToDevice, stream));
    if (step % 10 == 9) CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

enum Owner { kProgram, kNode, kProbe, kOwners };
constexpr const char* kOwnerNames[] = {"program", "node", "probe"};

struct Taken {
  double cpu_s[kOwners] = {};
  long waits[kOwners] = {};      // voluntary context switches
  long preempted[kOwners] = {};  // involuntary ones
};

// The file's text; empty if the thread has ended.
std::string Read(const std::string& path) {
  std::string text(4096, '\0');
  FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return {};
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

long Field(const std::string& status, const char* name) {
  const size_t at = status.find(name);
  return at == std::string::npos ? 0 : std::atol(status.c_str() + at + std::strlen(name));
}

Taken Now() {
  Taken taken;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    const std::string name = Read(folder + "/comm");
    const std::string status = Read(folder + "/status");
    const Owner owner = name.rfind("gpusim", 0) == 0     ? kNode
                        : name.rfind("gpuprobe", 0) == 0 ? kProbe
                                                         : kProgram;
    taken.cpu_s[owner] += std::atof(Read(folder + "/schedstat").c_str()) / 1e9;
    taken.waits[owner] += Field(status, "\nvoluntary_ctxt_switches:");
    taken.preempted[owner] += Field(status, "nonvoluntary_ctxt_switches:");
  }
  closedir(tasks);
  return taken;
}

}  // namespace

int main(int argc, char** argv) {
  const long steps = argc > 1 ? std::atol(argv[1]) : 0;
  if (steps < 1) {
    std::fprintf(stderr, "usage: eager_steps STEPS\n");
    return 2;
  }
  float* values = nullptr;
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaMalloc(&values, sizeof(float) << 16));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Train(kWarmupSteps, values, stream);
  const Taken before = Now();
  const auto began = std::chrono::steady_clock::now();
  Train(steps, values, stream);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
  const Taken after = Now();
  std::printf("{\"wall\": %.6f", wall.count());
  for (int owner = 0; owner < kOwners; ++owner)
    std::printf(", \"%s\": {\"cpu\": %.6f, \"waits\": %ld, \"preempted\": %ld}", kOwnerNames[owner],
                after.cpu_s[owner] - before.cpu_s[owner], after.waits[owner] - before.waits[owner],
                after.preempted[owner] - before.preempted[owner]);
  std::printf("}\n");
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(values));
  return 0;
}
