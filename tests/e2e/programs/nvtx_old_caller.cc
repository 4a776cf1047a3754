/* What programs do that were built with NVTX 1 or 2: those versions look up InitializeInjectionNvtx in the
 * library that NVTX_INJECTION64_PATH names, and hand it tables with fewer functions than today's. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}
#define EXPECT(condition) Expect(condition, #condition)

// Only as far as the version goes: what lies behind must not be written.
NvtxFunctionPointer core[NVTX_CBID_CORE_SIZE] = {};
NvtxFunctionPointer* core_table[NVTX_CBID_CORE_SIZE + 1] = {};
NvtxFunctionPointer core2[NVTX_CBID_CORE2_DomainDestroy + 1] = {};
NvtxFunctionPointer* core2_table[NVTX_CBID_CORE2_DomainDestroy + 2] = {};
int version = 0;

int NVTX_API ModuleFunctionTable(NvtxCallbackModule module, NvtxFunctionTable* table, unsigned int* size) {
  if (module == NVTX_CB_MODULE_CORE) {
    *table = core_table;
    *size = NVTX_CBID_CORE_SIZE;
    return 1;
  }
  if (module == NVTX_CB_MODULE_CORE2 && version == 2) {
    *table = core2_table;
    *size = NVTX_CBID_CORE2_DomainDestroy + 1;  // nvtxInitialize came with version 3
    return 1;
  }
  return 0;
}

const NvtxExportTableCallbacks kCallbacks = {sizeof(NvtxExportTableCallbacks), ModuleFunctionTable};

const void* NVTX_API ExportTable(uint32_t id) { return id == NVTX_ETID_CALLBACKS ? &kCallbacks : nullptr; }

template <typename Function>
Function As(NvtxFunctionPointer function) {
  EXPECT(function != nullptr);
  return reinterpret_cast<Function>(function);
}

}  // namespace

int main(int argc, char** argv) {
  version = argc > 1 ? std::atoi(argv[1]) : 2;
  for (int i = 1; i < NVTX_CBID_CORE_SIZE; ++i) core_table[i] = &core[i];
  for (int i = 1; i <= NVTX_CBID_CORE2_DomainDestroy; ++i) core2_table[i] = &core2[i];
  EXPECT(cudaFree(nullptr) == cudaSuccess);
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  EXPECT(path != nullptr);
  void* library = dlopen(path, RTLD_LAZY);
  EXPECT(library != nullptr);
  using Initialize = int (*)(const void* (*)(uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx"));
  EXPECT(initialize != nullptr && initialize(ExportTable) == 1);
  EXPECT(core_table[NVTX_CBID_CORE_SIZE] == nullptr &&
         core2_table[NVTX_CBID_CORE2_DomainDestroy + 1] == nullptr);

  nvtxDomainHandle_t domain = nullptr;
  if (version == 2) {
    domain = As<nvtxDomainHandle_t (*)(const char*)>(core2[NVTX_CBID_CORE2_DomainCreateA])("old domain");
    nvtxEventAttributes_t attributes{};
    attributes.version = 2;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = "outer";
    using PushEx = int (*)(nvtxDomainHandle_t, const nvtxEventAttributes_t*);
    EXPECT(As<PushEx>(core2[NVTX_CBID_CORE2_DomainRangePushEx])(domain, &attributes) == 0);
  }
  EXPECT(As<int (*)(const char*)>(core[NVTX_CBID_CORE_RangePushA])("inner") == 0);
  EXPECT(As<int (*)()>(core[NVTX_CBID_CORE_RangePop])() == 0);
  if (version == 2) {
    EXPECT(As<int (*)(nvtxDomainHandle_t)>(core2[NVTX_CBID_CORE2_DomainRangePop])(domain) == 0);
  }
  return 0;
}
