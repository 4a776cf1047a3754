// Runs the scenarios from a module that is opened after CUDA has started, and used the moment that it is
// there. The loader needs a second for it, so that the probe's own thread sees it half loaded.
//
// usage: hard_way_late MODULE SCENARIO

#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: hard_way_late MODULE SCENARIO\n");
    return 2;
  }
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto init =
      driver == nullptr ? nullptr : reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  if (init == nullptr || init(0) != 0) return 1;
  void* const module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto run = reinterpret_cast<int (*)(int, char**)>(dlsym(module, "HardWay"));
  return run == nullptr ? 1 : run(argc - 1, argv + 1);
}
