// A program that has a profiling plug-in (tool_plugin.cc) linked to it, or opens one when CUDA is up.
//
// usage: tool_host WAIT_US START STOP ROUNDS [PLUG-IN]   after CUDA has started and WAIT_US have passed, some
//   rounds of: start the plug-in, 20 kernels, stop it, close it, 20 kernels. Without PLUG-IN, the linked one.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#ifdef TOOL_IS_LINKED
#include "tests/e2e/programs/tool_plugin.h"
#endif

namespace {

__global__ void Add(int* sum) {
  if (threadIdx.x == 0) *sum += 1;
}

constexpr int kKernels = 20;
int* sum = nullptr;

void Work() {
  for (int i = 0; i < kKernels; ++i) Add<<<1, 32>>>(sum);
  if (cudaDeviceSynchronize() != cudaSuccess) std::exit(1);
}

struct Tool {
  int (*start)(const char*) = nullptr;
  int (*stop)(const char*) = nullptr;
  int (*kernels)() = nullptr;
  int (*calls)() = nullptr;
  int (*foreign)() = nullptr;
  void* library = nullptr;
};

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

Tool Open(const char* path) {
  Tool tool;
  tool.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (tool.library == nullptr) {
    std::fprintf(stderr, "tool_host: %s\n", dlerror());
    std::exit(1);
  }
  Find(tool.library, "tool_start", &tool.start);
  Find(tool.library, "tool_stop", &tool.stop);
  Find(tool.library, "tool_kernels", &tool.kernels);
  Find(tool.library, "tool_calls", &tool.calls);
  Find(tool.library, "tool_foreign", &tool.foreign);
  return tool;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  if (cudaFree(nullptr) != cudaSuccess) return 1;
  usleep(static_cast<useconds_t>(std::atoi(argv[1])));
  for (int round = 0; round < std::atoi(argv[4]); ++round) {
    Tool tool;
#ifdef TOOL_IS_LINKED
    tool = {tool_start, tool_stop, tool_kernels, tool_calls, tool_foreign, nullptr};
#endif
    if (argc > 5) tool = Open(argv[5]);
    const int started = tool.start(argv[2]);
    if (sum == nullptr && cudaMalloc(&sum, sizeof(*sum)) != cudaSuccess) return 1;
    Work();
    const int stopped = tool.stop(argv[3]);
    std::printf("started %d, stopped %d, %d kernels, calls %s, %d foreign buffers\n", started, stopped,
                tool.kernels(), tool.calls() > kKernels ? "seen" : "none", tool.foreign());
    std::fflush(stdout);
    if (tool.library != nullptr) dlclose(tool.library);
    Work();
    usleep(100'000);  // whatever the probe does now and then
    Work();
  }
  std::printf("done\n");
  return 0;
}
