#include "injector/nccl/part.h"

#include <cupti.h>

#include <atomic>

#include "injector/cupti/callbacks.h"
#include "injector/nccl/entry_points.h"
#include "injector/nccl/kernel_names.h"
#include "injector/nccl/patching.h"
#include "injector/nccl/plugin.h"
#include "injector/nccl/scopes.h"
#include "injector/nccl/torn_groups.h"
#include "injector/recording.h"
#include "injector/stream/event_ring.h"

namespace gpuprobe::injector {

namespace {

// The null stream of functions compiled for per-thread default streams is CU_STREAM_PER_THREAD.
const void* StreamOf(CUstream stream, bool per_thread_default) noexcept {
  return stream == nullptr && per_thread_default ? CU_STREAM_PER_THREAD : stream;
}

// A kernel outside every call that we saw. If it is NCCL's, either a plugin's event will explain it, or an
// object that came after the last scan may call NCCL past us. The probe's thread looks at once instead of at
// its next turn; a few times only, because non-blocking communicators launch from threads of NCCL's own.
void OnOtherLaunch(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  constexpr int kMaxSuspicions = 8;
  static constinit std::atomic<int> suspicions{0};
  if (thread.nccl_call_depth != 0 || !nccl::IsNcclKernel(data.symbolName)) return;
  if (thread.nccl_group_depth != 0) nccl::EndOfGroupWasMissed(thread);
  nccl::NotePluginLaunch(thread, data.correlationId);
  if (suspicions.load(std::memory_order_relaxed) >= kMaxSuspicions) return;
  if (suspicions.fetch_add(1, std::memory_order_relaxed) < kMaxSuspicions) nccl::AskForScan();
}

template <bool kPerThreadDefault>
void OnLaunchKernel(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (thread.nccl_batch == nullptr) return OnOtherLaunch(thread, data);
  if (data.functionParams == nullptr) return;
  const auto* params = static_cast<const cuLaunchKernel_params*>(data.functionParams);
  if (!nccl::NoteKernelLaunch(thread, data.symbolName, StreamOf(params->hStream, kPerThreadDefault),
                              data.context, data.correlationId)) {
    OnOtherLaunch(thread, data);
  }
}

template <bool kPerThreadDefault>
void OnLaunchKernelEx(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (thread.nccl_batch == nullptr) return OnOtherLaunch(thread, data);
  if (data.functionParams == nullptr) return;
  const auto* params = static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
  if (params->config == nullptr) return;
  if (!nccl::NoteKernelLaunch(thread, data.symbolName, StreamOf(params->config->hStream, kPerThreadDefault),
                              data.context, data.correlationId)) {
    OnOtherLaunch(thread, data);
  }
}

const char* CollectiveOp(uint16_t op) noexcept {
  return op < nccl::kEntryPoints ? nccl::kEntryPointNames[op].data() : "";
}

const char* CollectiveDataType(uint8_t type) noexcept {
  const std::string_view name = nccl::DataTypeName(type);
  return name.empty() ? "" : name.data();
}

void Start() noexcept {
  event_names.collective_op = CollectiveOp;
  event_names.collective_datatype = CollectiveDataType;
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_API_ENTER,
             OnLaunchKernel<false>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, CUPTI_API_ENTER,
             OnLaunchKernel<true>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_API_ENTER,
             OnLaunchKernelEx<false>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, CUPTI_API_ENTER,
             OnLaunchKernelEx<true>);
  graph_node_hooks = {nccl::WantsGraphNode, nccl::NoteGraphNode};
  new_library_hook = nccl::AskForScan;
  // A plugin costs NCCL something, for what is not recorded.
  if (recording.Wants(kRecordNccl)) nccl::OfferPlugin();
  nccl::PatchLoadedObjects();
}

void Finish() noexcept { nccl::FlushHeld(CurrentThread()); }

}  // namespace

const Part kNcclPart{"nccl", Start, nccl::PatchNewObjects, Finish, nccl::PatchNewObjects};

}  // namespace gpuprobe::injector
