#include "injector/capture/cupti/graph_calls.h"

#include <cupti.h>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/executable_graphs.h"
#include "injector/capture/cupti/graph_functions.h"
#include "injector/core/event_ring.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector {

constinit std::atomic<bool> any_graph_memory{false};

namespace {

// Functions that put a graph into another, maybe: cuGraphAddNode does so with nodes of one type.
#if CUDA_VERSION >= 12020
constexpr CUpti_CallbackId kNodeAdditions[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode,
#if CUDA_VERSION >= 12030
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2,
#endif
};
#endif

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

uint64_t NumberOf(const void* handle) noexcept { return reinterpret_cast<uint64_t>(handle); }

// Nodes copied on this thread during the call belong to the graph or node that the call makes.
void OnCopying(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.graph_copy = data.correlationId;
  thread.graph_copy_is_child = false;
}

void OnCopyingChild(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.graph_copy = data.correlationId;
  thread.graph_copy_is_child = true;
}

// Null: the call failed, or nothing is known of it.
template <typename Arguments>
const Arguments* Copied(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  thread.graph_copy = 0;
  thread.graph_copy_is_child = false;
  return ResultOf(data) == CUDA_SUCCESS ? static_cast<const Arguments*>(data.functionParams) : nullptr;
}

void OnInstantiated(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = Copied<InstantiateArguments>(thread, data);
  if (arguments == nullptr || arguments->exec == nullptr) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kInstantiated);
  event.graph = NumberOf(arguments->graph);
  event.exec = NumberOf(*arguments->exec);
  Emit(thread, event);
}

void OnCloned(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = Copied<cuGraphClone_params>(thread, data);
  if (arguments == nullptr || arguments->phGraphClone == nullptr) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kCloned);
  event.graph = NumberOf(*arguments->phGraphClone);
  Emit(thread, event);
}

void AddedChild(ThreadState& thread, const CUpti_CallbackData& data, const AddNodeArguments& arguments,
                CUgraph moved) noexcept {
  if (arguments.node == nullptr) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kChildAdded);
  event.graph = NumberOf(arguments.graph);
  event.node = NumberOf(*arguments.node);
  event.child = NumberOf(moved);
  Emit(thread, event);
}

void OnAddedChild(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = Copied<AddNodeArguments>(thread, data);
  if (arguments != nullptr) AddedChild(thread, data, *arguments, nullptr);
}

void ReplacedChild(ThreadState& thread, const CUpti_CallbackData& data, CUgraphExec exec, CUgraphNode node,
                   CUgraph child) noexcept {
  GraphCallEvent event = EventOf(thread, data, GraphCall::kChildReplaced);
  event.exec = NumberOf(exec);
  event.node = NumberOf(node);
  event.child = NumberOf(child);
  event.exec_number = NumberOfGraph(exec);
  Emit(thread, event);
}

void OnReplacedChild(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = static_cast<const cuGraphExecChildGraphNodeSetParams_params*>(data.functionParams);
  if (arguments == nullptr || ResultOf(data) != CUDA_SUCCESS) return;
  ReplacedChild(thread, data, arguments->hGraphExec, arguments->hNode, arguments->childGraph);
}

#if CUDA_VERSION >= 12020
// For cuGraphAddNode and cuGraphAddNode_v2.
const CUgraphNodeParams* ParamsOfNode(const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept {
#if CUDA_VERSION >= 12030
  if (cbid == CUPTI_DRIVER_TRACE_CBID_cuGraphAddNode_v2)
    return static_cast<const cuGraphAddNode_v2_params*>(data.functionParams)->nodeParams;
#endif
  return static_cast<const cuGraphAddNode_params*>(data.functionParams)->nodeParams;
}

void OnAddedNode(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept {
  const auto* arguments = Copied<AddNodeArguments>(thread, data);
  const CUgraphNodeParams* node = arguments == nullptr ? nullptr : ParamsOfNode(data, cbid);
  if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_GRAPH) return;
#if CUDA_VERSION >= 12090
  const bool moved = node->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
#else
  constexpr bool moved = false;
#endif
  AddedChild(thread, data, *arguments, moved ? node->graph.graph : nullptr);
}

void OnSetNode(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = static_cast<const cuGraphExecNodeSetParams_params*>(data.functionParams);
  if (arguments == nullptr || arguments->nodeParams == nullptr || ResultOf(data) != CUDA_SUCCESS) return;
  if (arguments->nodeParams->type != CU_GRAPH_NODE_TYPE_GRAPH) return;
  ReplacedChild(thread, data, arguments->hGraphExec, arguments->hNode, arguments->nodeParams->graph.graph);
}
#endif

void OnUpdated(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const auto* arguments = static_cast<const UpdateArguments*>(data.functionParams);
  if (arguments == nullptr || ResultOf(data) != CUDA_SUCCESS) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kUpdated);
  event.graph = NumberOf(arguments->graph);
  event.exec = NumberOf(arguments->exec);
  event.exec_number = NumberOfGraph(arguments->exec);
  Emit(thread, event);
}

// Memory is obtained or released somewhere within the call.
void NoteBegin(ThreadState& thread) noexcept {
  thread.memory_call_began_ns = any_graph_memory.load(std::memory_order_relaxed) ? Stamp() : 0;
}
uint64_t TakeBegin(ThreadState& thread) noexcept {
  const uint64_t began_ns = thread.memory_call_began_ns;
  thread.memory_call_began_ns = 0;
  return began_ns;
}

void OnLaunchingGraph(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.driver_call.name = data.functionName;
  NoteBegin(thread);
}

void OnGraphLaunched(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  thread.driver_call.End();
  const uint64_t began_ns = TakeBegin(thread);
  if (!any_graph_memory.load(std::memory_order_relaxed) || data.functionParams == nullptr) return;
  const CUresult result = ResultOf(data);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kLaunched);
  event.exec =
      reinterpret_cast<uint64_t>(static_cast<const cuGraphLaunch_params*>(data.functionParams)->hGraph);
  event.failed = result != CUDA_SUCCESS ? 1 : 0;
  event.began_ns = began_ns;
  Emit(thread, event);
}

// At entry: the handle may be reused before this thread reports that it is free.
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
  NoteBegin(thread);
}

void OnDestroyedExec(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId) noexcept {
  const uint64_t began_ns = TakeBegin(thread);
  if (began_ns == 0) return;
  GraphCallEvent event = EventOf(thread, data, GraphCall::kExecGone);
  event.began_ns = began_ns;
  Emit(thread, event);
}

}  // namespace

void AddGraphHooks() noexcept {
  constexpr auto kDriver = CUPTI_CB_DOMAIN_DRIVER_API;
  const auto copies = [](CUpti_CallbackId cbid, ApiHook begins, ApiHook done) noexcept {
    AddApiHook(kDriver, cbid, CUPTI_API_ENTER, begins);
    AddApiHook(kDriver, cbid, CUPTI_API_EXIT, done);
  };
  for (const CUpti_CallbackId cbid : kGraphInstantiations) copies(cbid, OnCopying, OnInstantiated);
  copies(CUPTI_DRIVER_TRACE_CBID_cuGraphClone, OnCopying, OnCloned);
  copies(CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode, OnCopyingChild, OnAddedChild);
  for (const CUpti_CallbackId cbid : kGraphUpdates) AddApiHook(kDriver, cbid, CUPTI_API_EXIT, OnUpdated);
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphExecChildGraphNodeSetParams, CUPTI_API_EXIT,
             OnReplacedChild);
#if CUDA_VERSION >= 12020
  for (const CUpti_CallbackId cbid : kNodeAdditions) copies(cbid, OnCopyingChild, OnAddedNode);
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, CUPTI_API_EXIT, OnSetNode);
#endif
  for (const CUpti_CallbackId cbid : kGraphLaunches) {
    AddApiHook(kDriver, cbid, CUPTI_API_ENTER, OnLaunchingGraph);
    AddApiHook(kDriver, cbid, CUPTI_API_EXIT, OnGraphLaunched);
  }
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphDestroy, CUPTI_API_ENTER, OnDestroyGraph);
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, CUPTI_API_ENTER, OnDestroyExec);
  AddApiHook(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, CUPTI_API_EXIT, OnDestroyedExec);
}

}  // namespace gpuprobe::injector
