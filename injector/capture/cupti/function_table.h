// The CUPTI functions that we use, bound at run time to the copy of libcupti that the process already has.
//
// Bound at run time because the library must load, and do the rest of its work, without CUPTI, and because
// tests put a fake here. Thread: the starting thread. Allocation: the loader's own. Failure: Bind returns
// false; a single function that this CUPTI does not have stays null.
#pragma once

#include <cupti.h>

#include <cstdint>

#include "injector/capture/cupti/many_subscribers.h"

namespace gpuprobe::injector {

// One row for each function that every release has: X(name without the prefix "cupti").
#define GPUPROBE_CUPTI_FUNCTIONS(X)    \
  X(GetVersion)                        \
  X(GetTimestamp)                      \
  X(SetThreadIdType)                   \
  X(GetThreadIdType)                   \
  X(Subscribe)                         \
  X(Unsubscribe)                       \
  X(EnableCallback)                    \
  X(EnableDomain)                      \
  X(EnableAllDomains)                  \
  X(GetCallbackState)                  \
  X(Finalize)                          \
  X(ActivityRegisterTimestampCallback) \
  X(ActivityPushExternalCorrelationId) \
  X(ActivityPopExternalCorrelationId)  \
  X(ActivityGetAttribute)              \
  X(ActivityRegisterCallbacks)         \
  X(ActivityEnable)                    \
  X(ActivityEnableAndDump)             \
  X(ActivityDisable)                   \
  X(ActivityFlushAll)                  \
  X(ActivityGetNextRecord)             \
  X(ActivityGetNumDroppedRecords)      \
  X(ActivitySetAttribute)              \
  X(GetDeviceId)                       \
  X(GetContextId)                      \
  X(GetStreamIdEx)                     \
  X(GetGraphNodeId)

struct CuptiApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration's name cannot be in parentheses
#define GPUPROBE_DECLARE(name) decltype(&cupti##name) name = nullptr;
  GPUPROBE_CUPTI_FUNCTIONS(GPUPROBE_DECLARE)
#undef GPUPROBE_DECLARE
#define GPUPROBE_DECLARE(name, parameters) CUptiResult(CUPTIAPI* name) parameters = nullptr;  // NOLINT
  GPUPROBE_CUPTI_V2_FUNCTIONS(GPUPROBE_DECLARE)
#undef GPUPROBE_DECLARE

  uint32_t version = 0;  // cuptiGetVersion's answer: 18 is CUDA 11.8 to 12.1, 27 is 12.9, then 130000 and up
  char path[1024] = {};  // the copy that we are bound to
  void* library = nullptr;
};

// Looks for a loaded libcupti: by soname (13, 12, 11.8), then any path whose file is called libcupti.so*;
// then loads the one of the program's CUDA, else of the driver's major version or an older one. False when
// there is none that has the functions a session cannot do without.
bool BindCupti(CuptiApi* api) noexcept;

// Major version of CUDA that a driver's file name implies ("libcuda.so.580.65.06" -> 13); 0 when it does not
// say.
int CudaMajorOfDriver(const char* libcuda_path) noexcept;
// "libcudart.so.12" or "libcudart-1f6c6a2d.so.12.4.127" -> 12; 0 when it does not say.
int CudaMajorOfRuntime(const char* libcudart_path) noexcept;

}  // namespace gpuprobe::injector
