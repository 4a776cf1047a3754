// Kernel launches, function attributes, occupancy.
#include "tests/sim/cudart/api.h"

using gpusim::cudart::FromDriver;
using gpusim::cudart::FunctionOfEntry;
using gpusim::cudart::Ready;

namespace {

const char* NameOf(const void* entry) {
  CUfunction function = FunctionOfEntry(entry);
  return function != nullptr ? function->name : nullptr;
}

cudaError_t Launch(const void* entry, dim3 grid, dim3 block, void** args, size_t shared,
                   cudaStream_t stream) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(entry);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  const CUresult result = cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                         static_cast<unsigned>(shared), stream, args, nullptr);
  // The runtime has a name of its own for a shape that no device takes.
  return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : FromDriver(result);
}

CUlaunchConfig DriverConfig(const cudaLaunchConfig_t& config) {
  CUlaunchConfig result{};
  result.gridDimX = config.gridDim.x;
  result.gridDimY = config.gridDim.y;
  result.gridDimZ = config.gridDim.z;
  result.blockDimX = config.blockDim.x;
  result.blockDimY = config.blockDim.y;
  result.blockDimZ = config.blockDim.z;
  result.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  result.hStream = config.stream;
  result.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  result.numAttrs = config.numAttrs;
  return result;
}

int Attribute(CUfunction_attribute attribute, CUfunction function) {
  int value = 0;
  cuFuncGetAttribute(&value, attribute, function);
  return value;
}

}  // namespace

RUNTIME_LAUNCH_API(cudaLaunchKernel, 7000, _ptsz, 7000, NameOf(func),
                   (const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                    cudaStream_t stream),
                   (func, gridDim, blockDim, args, sharedMem, stream)) {
  return Launch(func, gridDim, blockDim, args, sharedMem, stream);
}

// What nvcc 13 calls for <<<>>>. CUPTI publishes no parameters under its own id, so subscribers see it as
// cudaLaunchKernel.
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                                          size_t sharedMem, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, gridDim, blockDim, args, sharedMem, stream);
}
extern "C" cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                                               size_t sharedMem, cudaStream_t stream) {
  return cudaLaunchKernel_ptsz(kernel, gridDim, blockDim, args, sharedMem, stream);
}

RUNTIME_LAUNCH_API(cudaLaunchKernelExC, 11060, _ptsz, 11060, NameOf(func),
                   (const cudaLaunchConfig_t* config, const void* func, void** args), (config, func, args)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  if (config == nullptr) return cudaErrorInvalidValue;
  const CUlaunchConfig driver_config = DriverConfig(*config);
  const CUresult result = cuLaunchKernelEx(&driver_config, function, args, nullptr);
  return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : FromDriver(result);
}

RUNTIME_LAUNCH_API(cudaLaunchCooperativeKernel, 9000, _ptsz, 9000, NameOf(func),
                   (const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                    cudaStream_t stream),
                   (func, gridDim, blockDim, args, sharedMem, stream)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuLaunchCooperativeKernel(function, gridDim.x, gridDim.y, gridDim.z, blockDim.x,
                                              blockDim.y, blockDim.z, static_cast<unsigned>(sharedMem),
                                              stream, args));
}

RUNTIME_STREAM_API(cudaLaunchHostFunc, 10000, _ptsz, 10000,
                   (cudaStream_t stream, cudaHostFn_t fn, void* userData), (stream, fn, userData)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuLaunchHostFunc(stream, fn, userData));
}

RUNTIME_API(cudaFuncGetAttributes, 3020, (struct cudaFuncAttributes * attr, const void* func), (attr, func)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  if (attr == nullptr) return cudaErrorInvalidValue;
  *attr = cudaFuncAttributes{};
  attr->maxThreadsPerBlock = Attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
  attr->numRegs = Attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, function);
  attr->ptxVersion = Attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION, function);
  attr->binaryVersion = Attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION, function);
  attr->maxDynamicSharedSizeBytes = Attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
  attr->preferredShmemCarveout = Attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function);
  return cudaSuccess;
}

RUNTIME_API(cudaFuncSetAttribute, 9000, (const void* func, enum cudaFuncAttribute attr, int value),
            (func, attr, value)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(attr), value));
}

RUNTIME_API(cudaFuncSetCacheConfig, 3020, (const void* func, enum cudaFuncCache cacheConfig),
            (func, cacheConfig)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuFuncSetCacheConfig(function, static_cast<CUfunc_cache>(cacheConfig)));
}

RUNTIME_API(cudaFuncGetName, 12030, (const char** name, const void* func), (name, func)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuFuncGetName(name, function));
}

RUNTIME_API(cudaGetFuncBySymbol, 11000, (cudaFunction_t * functionPtr, const void* symbolPtr),
            (functionPtr, symbolPtr)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(symbolPtr);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  *functionPtr = function;
  return cudaSuccess;
}

RUNTIME_API(cudaOccupancyMaxActiveBlocksPerMultiprocessor, 6050,
            (int* numBlocks, const void* func, int blockSize, size_t dynamicSMemSize),
            (numBlocks, func, blockSize, dynamicSMemSize)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(
      cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, function, blockSize, dynamicSMemSize));
}

RUNTIME_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,
            (int* numBlocks, const void* func, int blockSize, size_t dynamicSMemSize, unsigned int flags),
            (numBlocks, func, blockSize, dynamicSMemSize, flags)) {
  GPUSIM_RETURN_IF(Ready());
  CUfunction function = FunctionOfEntry(func);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, function, blockSize,
                                                                         dynamicSMemSize, flags));
}
