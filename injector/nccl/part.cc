#include "injector/nccl/part.h"

#include <cupti.h>

#include <atomic>

#include "injector/cupti/callbacks.h"
#include "injector/nccl/awaited.h"
#include "injector/nccl/entry_points.h"
#include "injector/nccl/kernel_names.h"
#include "injector/nccl/patching.h"
#include "injector/nccl/plugin.h"
#include "injector/nccl/scopes.h"
#include "injector/nccl/short_names.h"
#include "injector/nccl/torn_groups.h"
#include "injector/nccl/unknown_functions.h"
#include "injector/recording.h"
#include "injector/stream/event_ring.h"

namespace gpuprobe::injector {

namespace {

// The null stream of functions compiled for per-thread default streams is CU_STREAM_PER_THREAD.
const void* StreamOf(CUstream stream, bool per_thread_default) noexcept {
  return stream == nullptr && per_thread_default ? CU_STREAM_PER_THREAD : stream;
}

// A kernel outside every call that we saw. If it is NCCL's, it is for calls on communicators that do not
// block, launched by a thread of NCCL's own, or a plugin's event will explain it, or an object that came
// after the last scan may call NCCL past us. The probe's thread looks at once instead of at its next turn; a
// few times only, because a program may have NCCL inside.
void OnOtherLaunch(ThreadState& thread, const CUpti_CallbackData& data, const void* stream) noexcept {
  constexpr int kMaxSuspicions = 8;
  static constinit std::atomic<int> suspicions{0};
  if (thread.nccl_call_depth != 0 || !nccl::IsNcclKernel(data.symbolName)) return;
  if (thread.nccl_group_depth != 0) nccl::EndOfGroupWasMissed(thread);
  const nccl::SeenLaunch launch =
      nccl::SeenLaunchOf(data.symbolName, stream, data.context, data.correlationId);
  if (nccl::NoteAwaitedLaunch(thread, launch)) return;
  nccl::NotePluginLaunch(thread, data.correlationId);
  if (suspicions.load(std::memory_order_relaxed) >= kMaxSuspicions) return;
  if (suspicions.fetch_add(1, std::memory_order_relaxed) < kMaxSuspicions) nccl::AskForScan();
}

void OnLaunch(ThreadState& thread, const CUpti_CallbackData& data, const void* stream) noexcept {
  if (thread.nccl_batch != nullptr &&
      nccl::NoteKernelLaunch(thread, data.symbolName, stream, data.context, data.correlationId)) {
    return;
  }
  OnOtherLaunch(thread, data, stream);
}

template <bool kPerThreadDefault>
void OnLaunchKernel(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  const auto* params = static_cast<const cuLaunchKernel_params*>(data.functionParams);
  OnLaunch(thread, data, StreamOf(params->hStream, kPerThreadDefault));
}

template <bool kPerThreadDefault>
void OnLaunchKernelEx(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  const auto* params = static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
  if (params->config == nullptr) return;
  OnLaunch(thread, data, StreamOf(params->config->hStream, kPerThreadDefault));
}

const char* CollectiveOp(uint16_t op) noexcept {
  return op < nccl::kEntryPoints ? nccl::kEntryPointNames[op].data() : "";
}

const char* CollectiveDataType(uint8_t type) noexcept {
  const std::string_view name = nccl::DataTypeName(type);
  return name.empty() ? "" : name.data();
}

bool NcclIdentityOf(int32_t* rank, int32_t* world_size) noexcept {
  nccl::NcclIdentity identity{};
  if (!nccl::IdentityFromNccl(&identity)) return false;
  *rank = identity.rank;
  *world_size = identity.world_size;
  return true;
}

void Start() noexcept {
  event_names.collective_op = CollectiveOp;
  event_names.collective_datatype = CollectiveDataType;
  event_names.collective_how = nccl::NameOfNumber;
  event_names.nccl_identity = NcclIdentityOf;
  event_names.unknown_function = nccl::UnknownFunction;
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_API_ENTER,
             OnLaunchKernel<false>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, CUPTI_API_ENTER,
             OnLaunchKernel<true>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_API_ENTER,
             OnLaunchKernelEx<false>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, CUPTI_API_ENTER,
             OnLaunchKernelEx<true>);
  graph_node_hooks = {nccl::WantsGraphNode, nccl::NoteGraphNode};
  new_library_hook = nccl::ScanIfObjectsAppeared;
  // A plugin costs NCCL something, for what is not recorded.
  if (recording.Wants(kRecordNccl)) nccl::OfferPlugin();
  nccl::PatchLoadedObjects();
}

void Tick() noexcept {
  nccl::PatchNewObjects();
  nccl::LookAtAwaited(CurrentThread(), false);
}

void Finish() noexcept {
  nccl::FlushHeld(CurrentThread());
  nccl::LookAtAwaited(CurrentThread(), true);
}

}  // namespace

const Part kNcclPart{"nccl", Start, Tick, Finish, nccl::PatchNewObjects};

}  // namespace gpuprobe::injector
