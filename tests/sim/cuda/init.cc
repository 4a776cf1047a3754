// Initialisation, versions, error texts, and looking functions up by name.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/sim/cuda/api.h"

namespace {

struct ErrorText {
  int code;
  const char* driver_name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define GPUSIM_ERROR(code, driver_name, runtime_name, text) {code, driver_name, text},
#include "tests/sim/core/errors.inc"
#undef GPUSIM_ERROR
};

const ErrorText* FindError(CUresult error) {
  for (const ErrorText& known : kErrors) {
    if (known.code == static_cast<int>(error) && known.driver_name != nullptr) return &known;
  }
  return nullptr;
}

// Functions whose newest form came with a later CUDA than the oldest that may ask: name, form, since.
struct Form {
  const char* name;
  const char* form;
  int since;
};
constexpr Form kForms[] = {
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 11030},
    {"cuCtxCreate", "cuCtxCreate_v4", 12050},
    {"cuCtxCreate", "cuCtxCreate_v2", 3020},
    {"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_v2", 12030},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
};

void* Lookup(const std::string& name) {
  static void* const kSelf = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&Lookup), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return kSelf != nullptr ? dlsym(kSelf, name.c_str()) : nullptr;
}

void* LookupWithTwin(const std::string& name, bool per_thread) {
  if (per_thread) {
    for (const char* suffix : {"_ptsz", "_ptds"}) {
      if (void* found = Lookup(name + suffix)) return found;
    }
  }
  return Lookup(name);
}

void* FindFunction(const char* name, int version, cuuint64_t flags) {
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  bool listed = false;
  for (const Form& form : kForms) {
    if (std::strcmp(form.name, name) != 0) continue;
    listed = true;
    if (version >= form.since) return LookupWithTwin(form.form, per_thread);
  }
  if (listed) return Lookup(name);
  if (void* found = LookupWithTwin(std::string(name) + "_v2", per_thread)) return found;
  return LookupWithTwin(name, per_thread);
}

}  // namespace

extern "C" CUresult cuInit(unsigned int Flags) {
  const cuInit_params params{Flags};
  return gpusim::Traced<CUresult>(
      CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuInit, "cuInit", &params, nullptr,
      [Flags] { return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : gpusim::InitDriver(); });
}

extern "C" CUresult cuDriverGetVersion(int* driverVersion) {
  const cuDriverGetVersion_params params{driverVersion};
  return gpusim::Traced<CUresult>(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion,
                                  "cuDriverGetVersion", &params, nullptr, [driverVersion] {
                                    if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
                                    *driverVersion = CUDA_VERSION;
                                    return CUDA_SUCCESS;
                                  });
}

extern "C" CUresult cuGetErrorString(CUresult error, const char** pStr) {
  const ErrorText* found = FindError(error);
  *pStr = found != nullptr ? found->text : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGetErrorName(CUresult error, const char** pStr) {
  const ErrorText* found = FindError(error);
  *pStr = found != nullptr ? found->driver_name : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                        CUdriverProcAddressQueryResult* symbolStatus) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pfn = FindFunction(symbol, cudaVersion, flags);
  if (symbolStatus != nullptr) {
    *symbolStatus = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *pfn != nullptr || symbolStatus != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// NVIDIA's private tables. The runtime that is linked into a program has the driver prove by one of them that
// it is NVIDIA's; the node's own runtime asks for none.
extern "C" CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  static const bool kHasSharedRuntime = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  static std::atomic<bool> said{false};
  if (!kHasSharedRuntime && !said.exchange(true)) {
    std::fputs(
        "gpusim: built with the static CUDA runtime; relink with -cudart shared to run it on the simulated "
        "node\n",
        stderr);
  }
  if (ppExportTable != nullptr) *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}

#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}
