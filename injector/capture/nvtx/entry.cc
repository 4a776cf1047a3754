// The symbols that NVTX looks up in NVTX_INJECTION64_PATH: version 3 of its headers the second, older ones
// the first; its extensions the third.
#include "injector/capture/nvtx/extension.h"
#include "injector/capture/nvtx/handlers.h"

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(uint32_t)) noexcept {
  return gpuprobe::injector::nvtx::PlaceHandlers(get_export_table);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx(
    const void* (*get_export_table)(uint32_t)) noexcept {
  return gpuprobe::injector::nvtx::PlaceHandlers(get_export_table);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(void* module) noexcept {
  return gpuprobe::injector::nvtx::PlaceExtensionHandlers(module);
}
}
