// Kernel launches, and the launch that libnccl makes.
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "tests/sim/aten/kernels.h"
#include "tests/sim/core/cublas_seam.h"
#include "tests/sim/core/knobs.h"
#include "tests/sim/cuda/api.h"

namespace {

const char* NameOf(CUfunction function) { return function != nullptr ? function->name : nullptr; }

CUfunction FunctionNamed(const char* name) {
  static auto* mutex = new std::mutex;
  static auto* functions = new std::map<const char*, CUfunction>;
  const std::lock_guard<std::mutex> lock(*mutex);
  CUfunction& function = (*functions)[name];
  if (function == nullptr) function = gpusim::KernelByName(name, nullptr);
  return function;
}

gpusim::KernelShape ShapeOf(const CUlaunchConfig& config) {
  return {{config.gridDimX, config.gridDimY, config.gridDimZ},
          {config.blockDimX, config.blockDimY, config.blockDimZ},
          config.sharedMemBytes};
}

// The first argument, passed by itself or at the start of a buffer, for a witness of the launch. A kernel
// without any has none to look at.
const void* ArgumentsOf(CUfunction function, void** each, void** extra) {
  const char* name = NameOf(function);
  if (name == nullptr || std::strstr(name, "nccl") == nullptr) return nullptr;
  if (each != nullptr) return each[0];
  for (void** entry = extra; entry != nullptr && *entry != CU_LAUNCH_PARAM_END; entry += 2) {
    if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) return entry[1];
  }
  return nullptr;
}

std::function<void()> EffectOf(CUfunction function, void** each, unsigned grid_y) {
  return function != nullptr ? gpusim::aten::EffectOfKernel(function->name, each, grid_y) : nullptr;
}

}  // namespace

DRIVER_LAUNCH_API(cuLaunchKernel, _ptsz, NameOf(f),
                  (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                   unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra),
                  (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                   kernelParams, extra)) {
  return gpusim::LaunchKernel(
      f, {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes}, hStream,
      ArgumentsOf(f, kernelParams, extra), EffectOf(f, kernelParams, gridDimY));
}

DRIVER_LAUNCH_API(cuLaunchKernelEx, _ptsz, NameOf(f),
                  (const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra),
                  (config, f, kernelParams, extra)) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return gpusim::LaunchKernel(f, ShapeOf(*config), config->hStream, ArgumentsOf(f, kernelParams, extra),
                              EffectOf(f, kernelParams, config->gridDimY));
}

DRIVER_LAUNCH_API(cuLaunchCooperativeKernel, _ptsz, NameOf(f),
                  (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                   unsigned int sharedMemBytes, CUstream hStream, void** kernelParams),
                  (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                   kernelParams)) {
  return gpusim::LaunchKernel(
      f, {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes}, hStream,
      ArgumentsOf(f, kernelParams, nullptr), EffectOf(f, kernelParams, gridDimY));
}

namespace gpusim {

int LaunchRendezvousKernel(void* stream, RendezvousLaunch launch) {
  CUfunction function = FunctionNamed(InternName(launch.kernel_name));
  CUlaunchConfig config{};
  config.gridDimX = launch.grid;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = launch.block;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = static_cast<CUstream>(stream);
  const void* communicator = launch.communicator;
  size_t size = sizeof communicator;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &communicator, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  const cuLaunchKernelEx_params params{&config, function, nullptr, extra};
  return Traced<CUresult>(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                          "cuLaunchKernelEx", &params, function->name, [&] {
                            Work work;
                            GPUSIM_CHECK(MakeKernelWork(function, ShapeOf(config), &work));
                            CUctx_st* context = nullptr;
                            GPUSIM_CHECK(RequireContext(&context));
                            work.kind = WorkKind::kRendezvous;
                            work.rendezvous = std::make_shared<const RendezvousLaunch>(std::move(launch));
                            return Issue(config.hStream, std::move(work), CU_GRAPH_NODE_TYPE_KERNEL, nullptr);
                          });
}

int LaunchMatmulKernel(void* stream, const MatmulLaunch& launch) {
  CUfunction function = FunctionNamed(InternName(launch.kernel_name));
  CUlaunchConfig config{};
  config.gridDimX = launch.grid[0];
  config.gridDimY = launch.grid[1];
  config.gridDimZ = launch.grid[2];
  config.blockDimX = launch.block;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = static_cast<CUstream>(stream);
  const cuLaunchKernelEx_params params{&config, function, nullptr, nullptr};
  return Traced<CUresult>(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                          "cuLaunchKernelEx", &params, function->name, [&] {
                            Work work;
                            GPUSIM_CHECK(MakeKernelWork(function, ShapeOf(config), &work));
                            CUctx_st* context = nullptr;
                            GPUSIM_CHECK(RequireContext(&context));
                            work.duration_ns = KernelDurationNs(function->name, launch.duration_ns);
                            return Issue(config.hStream, std::move(work), CU_GRAPH_NODE_TYPE_KERNEL, nullptr);
                          });
}

}  // namespace gpusim
