// Handlers for NVTX's payload extension: registering layouts, and ranges that consist only of payloads.
//
// A binary interface of its own beside handlers.h: each copy of NVTX hands us another table of slots, by
// another function. Thread: any, several times, before CUDA is up. Allocation: none. Failure: a table of
// another kind or version is left alone, and its functions stay empty.
#pragma once

namespace gpuprobe::injector::nvtx {

// `module` is an abi::Module (NVTX: nvtxExtModuleInfo_t), as InitializeInjectionNvtxExtension receives it. 1
// if handlers were placed.
int PlaceExtensionHandlers(void* module) noexcept;

}  // namespace gpuprobe::injector::nvtx
