// Loads a module, launches its kernel, unloads it, and does the same with another one: as often as it is
// told.
//
// usage: module_reload MODULES [LAUNCHES]

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s failed: %d\n", what, static_cast<int>(result));
  std::exit(1);
}

void UseModule(int number, int launches) {
  const std::string kernel = "kernel_of_module_" + std::to_string(number);
  const std::string text =
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry " + kernel + "()\n{\n  ret;\n}\n";
  CUmodule module = nullptr;
  Check(cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData");
  CUfunction function = nullptr;
  Check(cuModuleGetFunction(&function, module, kernel.c_str()), "cuModuleGetFunction");
  for (int i = 0; i < launches; ++i)
    Check(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
  Check(cuCtxSynchronize(), "cuCtxSynchronize");
  Check(cuModuleUnload(module), "cuModuleUnload");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int modules = std::atoi(argv[1]);
  const int launches = argc > 2 ? std::atoi(argv[2]) : 10;
  Check(cuInit(0), "cuInit");
  CUdevice device = 0;
  Check(cuDeviceGet(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  for (int number = 0; number < modules; ++number) UseModule(number, launches);
  return 0;
}
