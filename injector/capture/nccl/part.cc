#include "injector/capture/nccl/part.h"

#include <cupti.h>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/nccl/awaited.h"
#include "injector/capture/nccl/captured_nodes.h"
#include "injector/capture/nccl/copies.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/kernel_launches.h"
#include "injector/capture/nccl/patching.h"
#include "injector/capture/nccl/plugin.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/capture/nccl/short_names.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/capture/nccl/torn_groups.h"
#include "injector/capture/nccl/unknown_functions.h"
#include "injector/core/event_names.h"
#include "injector/core/event_ring.h"
#include "injector/core/recording.h"

namespace gpuprobe::injector {

namespace {

// The null stream of functions compiled for per-thread default streams is CU_STREAM_PER_THREAD.
const void* StreamOf(CUstream stream, bool per_thread_default) noexcept {
  return stream == nullptr && per_thread_default ? CU_STREAM_PER_THREAD : stream;
}

template <bool kPerThreadDefault>
void OnLaunchKernel(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  const auto* params = static_cast<const cuLaunchKernel_params*>(data.functionParams);
  nccl::NoteLaunch(thread, {.name = data.symbolName,
                            .stream = StreamOf(params->hStream, kPerThreadDefault),
                            .context = data.context,
                            .correlation = data.correlationId,
                            .each = params->kernelParams,
                            .extra = params->extra});
}

template <bool kPerThreadDefault>
void OnLaunchKernelEx(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  const auto* params = static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
  if (params->config == nullptr) return;
  nccl::NoteLaunch(thread, {.name = data.symbolName,
                            .stream = StreamOf(params->config->hStream, kPerThreadDefault),
                            .context = data.context,
                            .correlation = data.correlationId,
                            .each = params->kernelParams,
                            .extra = params->extra});
}

const char* CollectiveOp(uint16_t op) noexcept {
  return op < nccl::kEntryPoints ? nccl::kEntryPointNames[op].data() : "";
}

const char* CollectiveDataType(uint8_t type) noexcept {
  const std::string_view name = nccl::DataTypeName(type);
  return name.empty() ? "" : name.data();
}

const char* CollectiveReduction(uint8_t number) noexcept { return nccl::ReductionName(number).data(); }

bool NcclIdentityOf(int32_t* rank, int32_t* world_size) noexcept {
  nccl::NcclIdentity identity{};
  if (!nccl::IdentityFromNccl(&identity)) return false;
  *rank = identity.rank;
  *world_size = identity.world_size;
  return true;
}

uint64_t HashOf(uint32_t communicator, int32_t* ranks) noexcept {
  const nccl::Communicator* const known = nccl::FindById(communicator);
  *ranks = known == nullptr ? 0 : known->ranks.load(std::memory_order_relaxed);
  return known == nullptr ? 0 : known->hash.load(std::memory_order_relaxed);
}

bool Carried(uint64_t node, uint64_t* plan, uint32_t* copy) noexcept {
  const nccl::CapturedPlan carried = nccl::PlanOfCaptured(node);
  *plan = carried.plan;
  *copy = carried.copy;
  return carried.plan != 0;
}

void Start() noexcept {
  event_names.collective_op = CollectiveOp;
  event_names.collective_datatype = CollectiveDataType;
  event_names.collective_how = nccl::NameOfNumber;
  event_names.collective_reduction = CollectiveReduction;
  event_names.nccl_identity = NcclIdentityOf;
  event_names.communicator_hash = HashOf;
  event_names.unknown_function = nccl::UnknownFunction;
  event_names.other_unknown_functions = nccl::OtherUnknownFunctions;
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_API_ENTER,
             OnLaunchKernel<false>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, CUPTI_API_ENTER,
             OnLaunchKernel<true>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_API_ENTER,
             OnLaunchKernelEx<false>);
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, CUPTI_API_ENTER,
             OnLaunchKernelEx<true>);
  graph_node_hooks = {nccl::WantsGraphNode, nccl::NoteGraphNode, Carried};
  copy_hooks = {nccl::NoteCopy, nccl::NoteCopyCaptured};
  new_library_hook = nccl::AskForScan;
  thread_end_hook.store(nccl::EndThread, std::memory_order_relaxed);
  // A plugin costs NCCL something, for what is not recorded.
  if (recording.Wants(kRecordNccl)) nccl::OfferPlugin();
  nccl::PatchLoadedObjects();
}

void Tick() noexcept {
  nccl::PatchNewObjects();
  nccl::ReportEndedGroups(CurrentThread());
  nccl::LookAtAwaited(CurrentThread(), false);
}

void Finish() noexcept {
  nccl::FlushHeld(CurrentThread());
  nccl::LookAtAwaited(CurrentThread(), true);
}

}  // namespace

const Part kNcclPart{"nccl", Start, Tick, Finish, nccl::PatchNewObjects};

}  // namespace gpuprobe::injector
