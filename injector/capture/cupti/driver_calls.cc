#include "injector/capture/cupti/driver_calls.h"

#include <cuda.h>
#include <cupti.h>

#include "injector/capture/cupti/callbacks.h"
#include "injector/core/event_ring.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector {

namespace {

#define GPUPROBE_ID(function) CUPTI_DRIVER_TRACE_CBID_##function
constexpr CUpti_CallbackId kSlowFunctions[] = {
    // Modules
    GPUPROBE_ID(cuModuleLoad),
    GPUPROBE_ID(cuModuleLoadData),
    GPUPROBE_ID(cuModuleLoadDataEx),
    GPUPROBE_ID(cuModuleLoadFatBinary),
    GPUPROBE_ID(cuModuleUnload),
    GPUPROBE_ID(cuModuleGetFunction),  // loads the function, if the module was loaded lazily
    GPUPROBE_ID(cuLinkCreate),
    GPUPROBE_ID(cuLinkCreate_v2),
    GPUPROBE_ID(cuLinkAddData),
    GPUPROBE_ID(cuLinkAddData_v2),
    GPUPROBE_ID(cuLinkAddFile),
    GPUPROBE_ID(cuLinkAddFile_v2),
    GPUPROBE_ID(cuLinkComplete),
#if CUDA_VERSION >= 12000
    GPUPROBE_ID(cuLibraryLoadData),
    GPUPROBE_ID(cuLibraryLoadFromFile),
    GPUPROBE_ID(cuLibraryUnload),
    GPUPROBE_ID(cuLibraryGetModule),
#endif
#if CUDA_VERSION >= 12040
    GPUPROBE_ID(cuFuncLoad),
#endif
    // Graphs
    GPUPROBE_ID(cuGraphInstantiate),
    GPUPROBE_ID(cuGraphInstantiate_v2),
    GPUPROBE_ID(cuGraphInstantiateWithFlags),
#if CUDA_VERSION >= 12000
    GPUPROBE_ID(cuGraphInstantiateWithParams),
    GPUPROBE_ID(cuGraphInstantiateWithParams_ptsz),
    GPUPROBE_ID(cuGraphExecUpdate_v2),
#endif
    GPUPROBE_ID(cuGraphExecUpdate),
    GPUPROBE_ID(cuGraphUpload),
    GPUPROBE_ID(cuGraphUpload_ptsz),
    GPUPROBE_ID(cuGraphExecDestroy),
    // Contexts, streams, events
    GPUPROBE_ID(cuCtxCreate),
    GPUPROBE_ID(cuCtxCreate_v2),
    GPUPROBE_ID(cuCtxCreate_v3),
#if CUDA_VERSION >= 12050
    GPUPROBE_ID(cuCtxCreate_v4),
#endif
    GPUPROBE_ID(cuCtxDestroy),
    GPUPROBE_ID(cuCtxDestroy_v2),
    GPUPROBE_ID(cuDevicePrimaryCtxRetain),
    GPUPROBE_ID(cuDevicePrimaryCtxRelease),
    GPUPROBE_ID(cuDevicePrimaryCtxRelease_v2),
    GPUPROBE_ID(cuDevicePrimaryCtxReset),
    GPUPROBE_ID(cuDevicePrimaryCtxReset_v2),
    GPUPROBE_ID(cuStreamCreate),
    GPUPROBE_ID(cuStreamCreateWithPriority),
    GPUPROBE_ID(cuStreamDestroy),
    GPUPROBE_ID(cuStreamDestroy_v2),
    GPUPROBE_ID(cuEventCreate),
    GPUPROBE_ID(cuEventDestroy),
    GPUPROBE_ID(cuEventDestroy_v2),
    // Memory
    GPUPROBE_ID(cuMemAlloc_v2),
    GPUPROBE_ID(cuMemAllocPitch_v2),
    GPUPROBE_ID(cuMemAllocManaged),
    GPUPROBE_ID(cuMemFree_v2),
    GPUPROBE_ID(cuMemAllocAsync),
    GPUPROBE_ID(cuMemAllocAsync_ptsz),
    GPUPROBE_ID(cuMemAllocFromPoolAsync),
    GPUPROBE_ID(cuMemAllocFromPoolAsync_ptsz),
    GPUPROBE_ID(cuMemFreeAsync),
    GPUPROBE_ID(cuMemFreeAsync_ptsz),
    GPUPROBE_ID(cuMemPoolCreate),
    GPUPROBE_ID(cuMemPoolDestroy),
    GPUPROBE_ID(cuMemPoolTrimTo),
    GPUPROBE_ID(cuMemHostAlloc),
    GPUPROBE_ID(cuMemHostAlloc_v2),
    GPUPROBE_ID(cuMemAllocHost_v2),
    GPUPROBE_ID(cuMemFreeHost),
    GPUPROBE_ID(cuMemHostRegister),
    GPUPROBE_ID(cuMemHostRegister_v2),
    GPUPROBE_ID(cuMemHostUnregister),
    GPUPROBE_ID(cuMemAddressReserve),
    GPUPROBE_ID(cuMemAddressFree),
    GPUPROBE_ID(cuMemCreate),
    GPUPROBE_ID(cuMemMap),
    GPUPROBE_ID(cuMemSetAccess),
    GPUPROBE_ID(cuMemUnmap),
    GPUPROBE_ID(cuMemRelease),
    // Memory of other processes and devices
    GPUPROBE_ID(cuIpcOpenMemHandle),
    GPUPROBE_ID(cuIpcOpenMemHandle_v2),
    GPUPROBE_ID(cuIpcCloseMemHandle),
    GPUPROBE_ID(cuIpcOpenEventHandle),
    GPUPROBE_ID(cuMemImportFromShareableHandle),
    GPUPROBE_ID(cuMemPoolImportFromShareableHandle),
    GPUPROBE_ID(cuCtxEnablePeerAccess),
    GPUPROBE_ID(cuCtxDisablePeerAccess),
};
#undef GPUPROBE_ID

void OnEnter(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept {
  if (thread.slow_call_entered != 0 && thread.slow_call_correlation == data.correlationId) return;
  thread.slow_call_correlation = data.correlationId;
  thread.slow_call = cbid;
  thread.slow_call_entered = Stamp();
  thread.driver_call.Begin(data.functionName, thread.slow_call_entered);
}

void OnExit(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept {
  const uint64_t entered = thread.slow_call_entered;
  if (entered == 0 || thread.slow_call != cbid || thread.slow_call_correlation != data.correlationId) return;
  thread.slow_call_entered = 0;
  thread.driver_call.End();
  const uint64_t now = Stamp();
  if (IsSurelyShorter(entered, now, kSlowDriverCallNs)) [[likely]]
    return;
  DriverCallEvent event{};
  event.time_ns = now;
  event.entered_ns = entered;
  event.function = data.functionName;
  event.range_id = InnermostRange(thread);
  event.result =
      data.functionReturnValue == nullptr ? 0 : *static_cast<const CUresult*>(data.functionReturnValue);
  event.by_nccl = AllocatesForNccl(thread) ? 1 : 0;
  Emit(thread, event);
}

}  // namespace

void AddDriverCallHooks() noexcept {
  for (const CUpti_CallbackId cbid : kSlowFunctions) {
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnEnter);
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_EXIT, OnExit);
  }
}

}  // namespace gpuprobe::injector
