#include "injector/base/program_functions.h"

#include <dlfcn.h>

#include <cstdlib>

namespace gpuprobe::injector {

constinit ProgramFunctions program_functions{&getenv, &free};

namespace {

template <typename Function>
void Find(const char* name, Function* function) noexcept {
  void* const found = dlsym(RTLD_DEFAULT, name);
  if (found != nullptr) *function = reinterpret_cast<Function>(found);
}

}  // namespace

void FindProgramFunctions() noexcept {
  Find("getenv", &program_functions.getenv);
  Find("free", &program_functions.free);
}

}  // namespace gpuprobe::injector
