#include "injector/cupti/graph_calls.h"

#include <cupti.h>

#include "injector/cupti/callbacks.h"
#include "injector/stream/event_ring.h"
#include "injector/stream/host_clock.h"

namespace gpuprobe::injector {

constinit std::atomic<bool> any_graph_memory{false};

namespace {

// All forms of cuGraphInstantiate begin alike.
struct InstantiateArguments {
  CUgraphExec* exec;
  CUgraph graph;
};
static_assert(offsetof(cuGraphInstantiateWithFlags_params, hGraph) == offsetof(InstantiateArguments, graph));
static_assert(offsetof(cuGraphInstantiate_v2_params, hGraph) == offsetof(InstantiateArguments, graph));
#if CUPTI_API_VERSION >= 19  // CUDA 12.0
static_assert(offsetof(cuGraphInstantiateWithParams_params, hGraph) == offsetof(InstantiateArguments, graph));
#endif

struct UpdateArguments {
  CUgraphExec exec;
  CUgraph graph;
};
static_assert(offsetof(cuGraphExecUpdate_params, hGraph) == offsetof(UpdateArguments, graph));
#if CUPTI_API_VERSION >= 19
static_assert(offsetof(cuGraphExecUpdate_v2_params, hGraph) == offsetof(UpdateArguments, graph));
#endif

constexpr CUpti_CallbackId kInstantiations[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate_v2,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags,
#if CUPTI_API_VERSION >= 19
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams_ptsz,
#endif
};
constexpr CUpti_CallbackId kUpdates[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate,
#if CUPTI_API_VERSION >= 19
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2,
#endif
};
constexpr CUpti_CallbackId kGraphLaunches[] = {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
                                               CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz};

CUresult ResultOf(const CUpti_CallbackData& data) noexcept {
  return data.functionReturnValue == nullptr ? CUDA_ERROR_UNKNOWN
                                             : *static_cast<const CUresult*>(data.functionReturnValue);
}

GraphCallEvent EventOf(const ThreadState& thread, const CUpti_CallbackData& data, GraphCall call) noexcept {
  GraphCallEvent event{};
  event.time_ns = Stamp();
  event.range_id = InnermostRange(thread);
  event.context = reinterpret_cast<uint64_t>(data.context);
  event.correlation = data.correlationId;
  event.call = static_cast<uint8_t>(call);
  return event;
}

// The nodes that are copied meanwhile on this thread belong to what is instantiated.
void OnInstantiate(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.graph_instantiation = data.correlationId;
}

void OnInstantiated(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.graph_instantiation = 0;
  const auto* arguments = static_cast<const InstantiateArguments*>(data.functionParams);
  if (arguments == nullptr || arguments->exec == nullptr || ResultOf(data) != CUDA_SUCCESS) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kInstantiated);
  event.graph = reinterpret_cast<uint64_t>(arguments->graph);
  event.exec = reinterpret_cast<uint64_t>(*arguments->exec);
  Emit(thread, event);
}

void OnUpdated(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = static_cast<const UpdateArguments*>(data.functionParams);
  if (arguments == nullptr || ResultOf(data) != CUDA_SUCCESS) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kUpdated);
  event.graph = reinterpret_cast<uint64_t>(arguments->graph);
  event.exec = reinterpret_cast<uint64_t>(arguments->exec);
  Emit(thread, event);
}

void OnGraphLaunched(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (!any_graph_memory.load(std::memory_order_relaxed) || data.functionParams == nullptr) return;
  const CUresult result = ResultOf(data);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kLaunched);
  event.exec =
      reinterpret_cast<uint64_t>(static_cast<const cuGraphLaunch_params*>(data.functionParams)->hGraph);
  event.failed = result != CUDA_SUCCESS ? 1 : 0;
  Emit(thread, event);
}

// At entry: the handle may be given out again before this thread says that it is free.
void OnDestroyGraph(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kGraphDestroyed);
  event.graph =
      reinterpret_cast<uint64_t>(static_cast<const cuGraphDestroy_params*>(data.functionParams)->hGraph);
  Emit(thread, event);
}

void OnDestroyExec(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  if (data.functionParams == nullptr) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kExecDestroyed);
  event.exec = reinterpret_cast<uint64_t>(
      static_cast<const cuGraphExecDestroy_params*>(data.functionParams)->hGraphExec);
  Emit(thread, event);
}

}  // namespace

void AddGraphHooks() noexcept {
  constexpr auto kDriver = CUPTI_CB_DOMAIN_DRIVER_API;
  for (const CUpti_CallbackId cbid : kInstantiations) {
    AddApiHook(kDriver, cbid, CUPTI_API_ENTER, OnInstantiate);
    AddApiHook(kDriver, cbid, CUPTI_API_EXIT, OnInstantiated);
  }
  for (const CUpti_CallbackId cbid : kUpdates) AddApiHook(kDriver, cbid, CUPTI_API_EXIT, OnUpdated);
  for (const CUpti_CallbackId cbid : kGraphLaunches)
    AddApiHook(kDriver, cbid, CUPTI_API_EXIT, OnGraphLaunched);
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphDestroy, CUPTI_API_ENTER, OnDestroyGraph);
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, CUPTI_API_ENTER, OnDestroyExec);
}

}  // namespace gpuprobe::injector
