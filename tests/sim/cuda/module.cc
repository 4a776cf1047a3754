// Modules, libraries and functions: names, attributes, occupancy.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>

#include "tests/sim/core/memory.h"
#include "tests/sim/cuda/api.h"

namespace {

std::mutex& ModulesMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Text (PTX) names its kernels; of a binary image any name is believed.
std::string TextOf(const void* image) {
  const auto* text = static_cast<const char*>(image);
  const std::string start(text, strnlen(text, 4096));
  return start.find(".version") != std::string::npos ? std::string(text) : std::string();
}

CUresult FunctionOf(CUmodule module, const char* name, CUfunction* function) {
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(ModulesMutex());
  if (!module->image.empty() && module->image.find(std::string(".entry ") + name) == std::string::npos)
    return CUDA_ERROR_NOT_FOUND;
  CUfunction& known = module->functions[name];
  if (known == nullptr) known = gpusim::KernelByName(name, module);
  *function = known;
  return CUDA_SUCCESS;
}

CUresult FunctionAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 90;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function->carveout;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetFunctionAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
      function->max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      function->carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Blocks that threads and shared memory leave room for on one multiprocessor.
CUresult ActiveBlocks(int* blocks, CUfunction function, int block_size, size_t shared_bytes) {
  if (blocks == nullptr || function == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (block_size > 1024) {
    *blocks = 0;
    return CUDA_SUCCESS;
  }
  const int warps = (block_size + 31) / 32;
  int limit = std::min(32, 64 / warps);
  const size_t needed = shared_bytes + 1024;
  limit = std::min(limit, static_cast<int>((size_t{228} << 10) / needed));
  *blocks = limit;
  return CUDA_SUCCESS;
}

CUkernel AsKernel(CUfunction function) { return static_cast<CUkernel>(function); }

}  // namespace

DRIVER_API(cuModuleLoadData, (CUmodule * module, const void* image), (module, image)) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  *module = new CUmod_st;
  (*module)->image = TextOf(image);
  gpusim::NotifyResource(gpusim::ResourceEvent::kModuleLoaded, context, nullptr);
  const gpusim::Locked locked;
  context->loaded_modules.insert(*module);
  return CUDA_SUCCESS;
}

DRIVER_API(cuModuleLoadDataEx,
           (CUmodule * module, const void* image, unsigned int numOptions, CUjit_option* options,
            void** optionValues),
           (module, image, numOptions, options, optionValues)) {
  return cuModuleLoadData_body(module, image);
}

DRIVER_API(cuModuleLoadFatBinary, (CUmodule * module, const void* fatCubin), (module, fatCubin)) {
  return cuModuleLoadData_body(module, fatCubin);
}

DRIVER_API(cuModuleLoad, (CUmodule * module, const char* fname), (module, fname)) {
  std::ifstream file(fname, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream content;
  content << file.rdbuf();
  return cuModuleLoadData_body(module, content.str().c_str());
}

DRIVER_API(cuModuleUnload, (CUmodule hmod), (hmod)) {
  if (hmod == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  gpusim::NotifyResource(gpusim::ResourceEvent::kModuleUnloadStarting, context, nullptr);
  {
    const gpusim::Locked locked;
    context->loaded_modules.erase(hmod);
  }
  const std::lock_guard<std::mutex> lock(ModulesMutex());
  for (const auto& [name, function] : hmod->functions) gpusim::RetireKernel(function);
  hmod->functions.clear();  // the structure stays: handles to it may be about
  return CUDA_SUCCESS;
}

DRIVER_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode)) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

DRIVER_API(cuModuleGetFunction, (CUfunction * hfunc, CUmodule hmod, const char* name), (hfunc, hmod, name)) {
  return FunctionOf(hmod, name, hfunc);
}

DRIVER_API(cuLibraryLoadData,
           (CUlibrary * library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
            unsigned int numJitOptions, CUlibraryOption* libraryOptions, void** libraryOptionValues,
            unsigned int numLibraryOptions),
           (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
            numLibraryOptions)) {
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = new CUlib_st;
  (*library)->module.image = TextOf(code);
  return CUDA_SUCCESS;
}

DRIVER_API(cuLibraryUnload, (CUlibrary library), (library)) {
  return library != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

DRIVER_API(cuLibraryGetKernel, (CUkernel * pKernel, CUlibrary library, const char* name),
           (pKernel, library, name)) {
  if (library == nullptr || pKernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUfunction function = nullptr;
  GPUSIM_CHECK(FunctionOf(&library->module, name, &function));
  *pKernel = AsKernel(function);
  return CUDA_SUCCESS;
}

DRIVER_API(cuLibraryGetModule, (CUmodule * pMod, CUlibrary library), (pMod, library)) {
  if (library == nullptr || pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pMod = &library->module;
  return CUDA_SUCCESS;
}

DRIVER_API(cuKernelGetFunction, (CUfunction * pFunc, CUkernel kernel), (pFunc, kernel)) {
  if (kernel == nullptr || pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pFunc = kernel;
  return CUDA_SUCCESS;
}

DRIVER_API(cuKernelGetName, (const char** name, CUkernel hfunc), (name, hfunc)) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = hfunc->name;
  return CUDA_SUCCESS;
}

DRIVER_API(cuKernelGetAttribute, (int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev),
           (pi, attrib, kernel, dev)) {
  return FunctionAttribute(pi, attrib, kernel);
}

DRIVER_API(cuKernelSetAttribute, (CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev),
           (attrib, val, kernel, dev)) {
  return SetFunctionAttribute(kernel, attrib, val);
}

DRIVER_API(cuFuncGetName, (const char** name, CUfunction hfunc), (name, hfunc)) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = hfunc->name;
  return CUDA_SUCCESS;
}

DRIVER_API(cuFuncGetAttribute, (int* pi, CUfunction_attribute attrib, CUfunction hfunc),
           (pi, attrib, hfunc)) {
  return FunctionAttribute(pi, attrib, hfunc);
}

DRIVER_API(cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value),
           (hfunc, attrib, value)) {
  return SetFunctionAttribute(hfunc, attrib, value);
}

DRIVER_API(cuFuncSetCacheConfig, (CUfunction hfunc, CUfunc_cache config), (hfunc, config)) {
  return hfunc != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

DRIVER_API(cuFuncGetModule, (CUmodule * hmod, CUfunction hfunc), (hmod, hfunc)) {
  if (hmod == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *hmod = static_cast<CUmodule>(const_cast<void*>(hfunc->module));
  return CUDA_SUCCESS;
}

DRIVER_API(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction function), (state, function)) {
  if (state == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

DRIVER_API(cuFuncLoad, (CUfunction function), (function)) {
  return function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

DRIVER_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
           (int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize),
           (numBlocks, func, blockSize, dynamicSMemSize)) {
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize);
}

DRIVER_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
           (int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags),
           (numBlocks, func, blockSize, dynamicSMemSize, flags)) {
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize);
}

DRIVER_API(cuOccupancyMaxPotentialBlockSize,
           (int* minGridSize, int* blockSize, CUfunction func, CUoccupancyB2DSize blockSizeToDynamicSMemSize,
            size_t dynamicSMemSize, int blockSizeLimit),
           (minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit)) {
  const int limit = blockSizeLimit > 0 ? std::min(blockSizeLimit, 1024) : 1024;
  const size_t shared =
      blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(limit) : dynamicSMemSize;
  int blocks = 0;
  GPUSIM_CHECK(ActiveBlocks(&blocks, func, limit, shared));
  *blockSize = limit;
  *minGridSize = blocks * static_cast<int>(gpusim::FactsOfDevice(0).multiprocessors);
  return CUDA_SUCCESS;
}
