#include "injector/capture/cupti/launches.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/executable_graphs.h"
#include "injector/capture/cupti/graph_functions.h"
#include "injector/capture/cupti/session.h"
#include "injector/core/event_ring.h"
#include "injector/core/flight_recorder.h"
#include "injector/core/host_clock.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::injector {

namespace {

constexpr CUpti_driver_api_trace_cbid kLaunches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoA,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoD,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoA,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoH,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoA,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3D,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoAAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoHAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32,
    CUPTI_DRIVER_TRACE_CBID_cuLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoH_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoHAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoD_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoA_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoA_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3D_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoA_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoAAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeer,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeerAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoA_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoD_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoA_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoH_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoA_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3D_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeer_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32_v2_ptds,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoAAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAtoHAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeerAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
#if CUDA_VERSION >= 12080
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_ptsz,
#endif
#if CUDA_VERSION >= 13000
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_v2_ptsz,
#endif
};

constexpr CUpti_driver_api_trace_cbid kNoLaunches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddKernelNode,
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemcpyNode,
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemsetNode,
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode,
    CUPTI_DRIVER_TRACE_CBID_cuGraphClone,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate,
#if CUDA_VERSION >= 12000
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddKernelNode_v2,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2,
#endif
#if CUDA_VERSION >= 12020
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode,
#endif
#if CUDA_VERSION >= 12030
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2,
#endif
};

// The last records of a context are requested while it still exists.
constexpr CUpti_driver_api_trace_cbid kContextEnds[] = {
    CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy,
    CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2,
};

// Where a function's parameters hold the bytes that it copies, or the elements that it fills; with 0 there is
// no record.
struct Amount {
  CUpti_driver_api_trace_cbid cbid;
  size_t offset;
};
#define GPUPROBE_AMOUNT(function, field) \
  { CUPTI_DRIVER_TRACE_CBID_##function, offsetof(function##_params, field) }
constexpr Amount kCopyAmounts[] = {
    GPUPROBE_AMOUNT(cuMemcpyHtoD_v2, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyDtoH_v2, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyHtoDAsync_v2, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyDtoHAsync_v2, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyDtoDAsync_v2, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyHtoD_v2_ptds, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyDtoH_v2_ptds, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyHtoDAsync_v2_ptsz, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyDtoHAsync_v2_ptsz, ByteCount),
    GPUPROBE_AMOUNT(cuMemcpyDtoDAsync_v2_ptsz, ByteCount),
};
#undef GPUPROBE_AMOUNT

// By function: the amount's offset in the parameters plus one; 0: not known. Filled when the hooks are added.
constinit uint8_t amount_offsets[kMaxCallbackId] = {};

// True for a launch that must have a record. Whether a launch was captured is known only where nodes are
// watched.
bool MustHaveRecord(const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept {
  if (graph_node_hooks.on_node == nullptr) return false;
  if (data.symbolName != nullptr) return recording.Wants(kRecordKernels);
  if (cbid >= kMaxCallbackId || amount_offsets[cbid] == 0 || data.functionParams == nullptr) return false;
  size_t amount = 0;
  std::memcpy(&amount, static_cast<const char*>(data.functionParams) + amount_offsets[cbid] - 1,
              sizeof(amount));
  return recording.Wants(kRecordCopies) && amount > 0 && amount >= recording.min_copy_bytes;
}

// The kernel's owner, in case its record has a wrong name.
wire::KernelOwner OwnerOf(const char* kernel) noexcept {
  if (kernel == nullptr || !CuptiSession::names_may_be_stale()) [[likely]]
    return wire::KernelOwner::kKernelOwnerNotSaid;
  constexpr size_t kEnough = 64;  // more than any prefix
  return gpuprobe::nccl::IsKernelName({kernel, strnlen(kernel, kEnough)})
             ? wire::KernelOwner::kKernelOwnerNccl
             : wire::KernelOwner::kKernelOwnerOther;
}

// Correlation ids advance in step with a program's loops, so they are mixed first.
bool IsTimed(uint32_t correlation) noexcept {
  return correlation * 0x9E3779B1u <= UINT32_MAX / kLaunchSampling;
}

void NoteLaunch(ThreadState& thread, const CUpti_CallbackData& data, uint32_t graph,
                bool may_lack_record) noexcept {
  // One driver function may be made of another; the record carries the id of the outermost.
  if (data.correlationId == thread.last_launch_correlation) return;
  thread.last_launch_correlation = data.correlationId;
  thread.newest_launch.store(data.correlationId, std::memory_order_relaxed);
  const uint64_t now = Stamp();
  RecordLaunch(thread, now);
  if (step_gate.in_use() && !step_gate.Launched(data.correlationId)) {
    if (!step_gate.rests()) CountSelf(SelfCounter::kOutsideWindow);
    return;
  }
  const uint64_t range = InnermostRange(thread);
  thread.launch_entered_ns = now;
  thread.launch_is_timed = data.symbolName != nullptr && IsTimed(data.correlationId);
  Emit(thread,
       LaunchEvent{.time_ns = now,
                   .range_id = range,
                   .fallback_range_id = range != 0 ? 0 : main_thread_range.load(std::memory_order_relaxed),
                   .correlation = data.correlationId,
                   .graph = graph,
                   .may_lack_record = may_lack_record ? 1u : 0u,
                   .owner = static_cast<uint32_t>(OwnerOf(data.symbolName))});
  if (data.symbolName == nullptr && thread.nccl_call_depth != 0 && copy_hooks.launched != nullptr)
    copy_hooks.launched(thread, data.correlationId);
}

void OnLaunch(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept {
  thread.driver_call.name = data.functionName;
  NoteLaunch(thread, data, 0, !MustHaveRecord(data, cbid));
}

// A launch that was refused leaves no record.
void OnLaunched(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId /*cbid*/) noexcept {
  thread.driver_call.End();
  const auto* result = static_cast<const CUresult*>(data.functionReturnValue);
  if (result == nullptr || *result == CUDA_SUCCESS) [[likely]] {
    if (std::exchange(thread.launch_is_timed, false))
      Emit(thread, LaunchTimeEvent{Stamp(), thread.launch_entered_ns});
    return;
  }
  thread.launch_is_timed = false;
  RecordFailure(thread, {flight::FailureKind::kLaunch, *result, 0, data.functionName});
  if (data.correlationId == thread.last_launch_correlation)
    Emit(thread, PlanLaunchEvent{0, data.correlationId, 0, kRefusedLaunch, 0, 0});
}

void OnGraphLaunch(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId /*cbid*/) noexcept {
  const auto* arguments = static_cast<const cuGraphLaunch_params*>(data.functionParams);
  NoteLaunch(thread, data, NumberOfGraph(arguments == nullptr ? nullptr : arguments->hGraph), true);
}

// Calls that make graph nodes without launching anything, or begin a capture: the launch before is over.
// executable_graphs.cc handles instantiation.
void OnNoLaunch(ThreadState& thread, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  thread.last_launch_correlation = 0;
  CuptiSession::OnGraph();
}

void OnContextEnd(ThreadState& /*thread*/, const CUpti_CallbackData& /*data*/,
                  CUpti_CallbackId /*cbid*/) noexcept {
  WakeProbeThread();
}

// The context's memory was released somewhere within the call.
void OnContextEnded(ThreadState& thread, const CUpti_CallbackData& /*data*/,
                    CUpti_CallbackId /*cbid*/) noexcept {
  Emit(thread, ContextEndEvent{Stamp(), 0});
}

}  // namespace

void NoteCaptured(ThreadState& thread, uint64_t node) noexcept {
  if (thread.nccl_call_depth != 0 && copy_hooks.captured != nullptr) copy_hooks.captured(thread);
  if (thread.last_launch_correlation != 0)
    Emit(thread, PlanLaunchEvent{0, thread.last_launch_correlation, 0, node, 0, 0});
}

void AddLaunchHooks() noexcept {
  for (const Amount& amount : kCopyAmounts)
    amount_offsets[amount.cbid] = static_cast<uint8_t>(amount.offset + 1);
  for (const auto cbid : kLaunches) {
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnLaunch, HookMakes::kARecord);
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_EXIT, OnLaunched);
  }
  for (const auto cbid : kGraphLaunches)
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnGraphLaunch, HookMakes::kARecord);
  AddExecutableGraphHooks();
  for (const auto cbid : kNoLaunches)
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnNoLaunch);
  for (const auto cbid : kContextEnds) {
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnContextEnd);
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_EXIT, OnContextEnded);
  }
}

}  // namespace gpuprobe::injector
