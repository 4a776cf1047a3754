// The handlers that NVTX calls instead of doing nothing, and their installation.
//
// NVTX lives in every library that includes its headers; on its first call each copy opens
// NVTX_INJECTION64_PATH and hands us its tables of function pointers, into which our handlers are written.
// This is only NVTX's binary interface; ranges.h gives the calls their meaning. Thread: any, several times,
// before CUDA is up. Allocation: none. Failure: a missing or too short table leaves those calls empty.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nvtx {

// NVTX's export-table getter, as InitializeInjectionNvtx2 receives it. 1 if handlers were placed, 0 if this
// copy has no tables that we know.
using GetExportTable = const void* (*)(uint32_t table);
int PlaceHandlers(GetExportTable get_export_table) noexcept;

}  // namespace gpuprobe::injector::nvtx
