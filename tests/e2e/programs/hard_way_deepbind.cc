// Runs the scenarios from a module that is opened with RTLD_DEEPBIND: what the module is linked with comes
// before what was preloaded.
//
// usage: hard_way_deepbind MODULE SCENARIO

#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: hard_way_deepbind MODULE SCENARIO\n");
    return 2;
  }
  void* const module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (module == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto run = reinterpret_cast<int (*)(int, char**)>(dlsym(module, "HardWay"));
  return run == nullptr ? 1 : run(argc - 1, argv + 1);
}
