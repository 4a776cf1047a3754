// NVTX's payload extension: how layouts are registered, and ranges that consist of payloads alone.
//
// Separate from handlers.h because it is another binary interface: each copy of NVTX hands us its table of
// slots once more, by another function. Thread: any, several times, before CUDA is up. Allocation: none.
// Failure: a table of another kind or version is left alone, and its functions stay empty.
#pragma once

namespace gpuprobe::injector::nvtx {

// `module` is an abi::Module (NVTX: nvtxExtModuleInfo_t), as InitializeInjectionNvtxExtension receives it. 1
// if handlers were placed.
int PlaceExtensionHandlers(void* module) noexcept;

}  // namespace gpuprobe::injector::nvtx
