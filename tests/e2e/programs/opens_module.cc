// Initialises CUDA, lets some time pass, opens a module that links NCCL, and runs it at once. With
// OPENS_ON_ANOTHER_THREAD=1 the look-up of its function does not follow the opening on one thread.
//
// usage: opens_module MODULE ARGUMENTS..

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "samples/common/check.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  CHECK_CUDA(cudaFree(nullptr));
  usleep(300000);
  void* module = nullptr;
  const auto open = [&] { module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL); };
  if (std::getenv("OPENS_ON_ANOTHER_THREAD") == nullptr) {
    open();
  } else {
    std::thread(open).join();
  }
  if (module == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void* function = dlsym(module, "RunCollectives");
  if (function == nullptr) function = dlsym(module, "HardWay");
  const auto run = reinterpret_cast<int (*)(int, char**)>(function);
  return run == nullptr ? 1 : run(argc - 1, argv + 1);
}
