// Graphs: made by hand or by capture, instantiated, launched.
#include "tests/sim/core/graph.h"

#include <algorithm>

#include "tests/sim/core/array.h"
#include "tests/sim/core/copy.h"
#include "tests/sim/cuda/api.h"

using gpusim::AddNode;
using gpusim::Locked;
using gpusim::Work;

namespace {

// The pattern of CUDA's list queries: with no array, how many there are; else as many as fit, and how many
// that were.
template <typename Fill>
void FillList(size_t available, size_t* count, bool wanted, Fill fill) {
  if (wanted) {
    const size_t given = std::min(*count, available);
    for (size_t i = 0; i < given; ++i) fill(i);
    *count = given;
  } else {
    *count = available;
  }
}

CUresult AddKernel(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                   const CUDA_KERNEL_NODE_PARAMS& params) {
  CUfunction function = params.func != nullptr ? params.func : params.kern;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  GPUSIM_CHECK(gpusim::MakeKernelWork(function,
                                      {{params.gridDimX, params.gridDimY, params.gridDimZ},
                                       {params.blockDimX, params.blockDimY, params.blockDimZ},
                                       params.sharedMemBytes},
                                      &work));
  return AddNode(graph, dependencies, count, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work), nullptr, node);
}

}  // namespace

DRIVER_API(cuGraphCreate, (CUgraph * phGraph, unsigned int flags), (phGraph, flags)) {
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Locked locked;
  *phGraph = gpusim::NewGraph();
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphDestroy, (CUgraph hGraph), (hGraph)) {
  const Locked locked;
  if (!gpusim::IsLive(hGraph) || hGraph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::DropGraph(hGraph);
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphClone, (CUgraph * phGraphClone, CUgraph originalGraph), (phGraphClone, originalGraph)) {
  if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraphClone = gpusim::CloneGraph(originalGraph);
  return *phGraphClone != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_API(cuGraphAddKernelNode_v2,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams),
           (phGraphNode, hGraph, dependencies, numDependencies, nodeParams)) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddKernel(phGraphNode, hGraph, dependencies, numDependencies, *nodeParams);
}

DRIVER_API(cuGraphAddMemcpyNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext ctx),
           (phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx)) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::CopyShape shape;
  GPUSIM_CHECK(gpusim::ShapeOfCopy3D(*copyParams, &shape));
  Work work;
  GPUSIM_CHECK(gpusim::MakeCopyWork(shape, &work));
  return AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY, std::move(work), nullptr,
                 phGraphNode);
}

DRIVER_API(cuGraphAddMemsetNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx),
           (phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx)) {
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::FillShape shape;
  shape.destination = memsetParams->dst;
  shape.pitch = memsetParams->pitch;
  shape.value = memsetParams->value;
  shape.element_bytes = memsetParams->elementSize;
  shape.width = memsetParams->width;
  shape.height = memsetParams->height;
  Work work;
  GPUSIM_CHECK(gpusim::MakeFillWork(shape, &work));
  return AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET, std::move(work), nullptr,
                 phGraphNode);
}

DRIVER_API(cuGraphAddHostNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams),
           (phGraphNode, hGraph, dependencies, numDependencies, nodeParams)) {
  if (nodeParams == nullptr || nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.kind = gpusim::WorkKind::kHost;
  work.host = [fn = nodeParams->fn, data = nodeParams->userData] { fn(data); };
  return AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST, std::move(work), nullptr,
                 phGraphNode);
}

DRIVER_API(cuGraphAddEmptyNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies),
           (phGraphNode, hGraph, dependencies, numDependencies)) {
  return AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY, Work{}, nullptr,
                 phGraphNode);
}

DRIVER_API(cuGraphAddEventRecordNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, CUevent event),
           (phGraphNode, hGraph, dependencies, numDependencies, event)) {
  return AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EVENT_RECORD, Work{}, event,
                 phGraphNode);
}

DRIVER_API(cuGraphAddEventWaitNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, CUevent event),
           (phGraphNode, hGraph, dependencies, numDependencies, event)) {
  return AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_WAIT_EVENT, Work{}, event,
                 phGraphNode);
}

DRIVER_API(cuGraphAddChildGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, CUgraph childGraph),
           (phGraphNode, hGraph, dependencies, numDependencies, childGraph)) {
  if (childGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return gpusim::AddChildNode(hGraph, dependencies, numDependencies, childGraph, false, phGraphNode);
}

DRIVER_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode hNode, CUgraph* phGraph), (hNode, phGraph)) {
  const Locked locked;
  if (!gpusim::IsLiveNodeLocked(hNode) || hNode->child == nullptr || phGraph == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *phGraph = hNode->child;
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphNodeFindInClone, (CUgraphNode * phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph),
           (phNode, hOriginalNode, hClonedGraph)) {
  const Locked locked;
  if (phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phNode = gpusim::FindInCloneLocked(hClonedGraph, hOriginalNode);
  return *phNode != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_API(cuGraphAddDependencies_v2,
           (CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* edgeData,
            size_t numDependencies),
           (hGraph, from, to, edgeData, numDependencies)) {
  const Locked locked;
  if (!gpusim::IsLive(hGraph)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numDependencies; ++i)
    GPUSIM_CHECK(gpusim::AddDependencyLocked(hGraph, from[i], to[i]));
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphNodeGetType, (CUgraphNode hNode, CUgraphNodeType* type), (hNode, type)) {
  const Locked locked;
  if (!gpusim::IsLiveNodeLocked(hNode) || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = hNode->type;
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphGetNodes, (CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes),
           (hGraph, nodes, numNodes)) {
  const Locked locked;
  if (!gpusim::IsLive(hGraph) || numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FillList(hGraph->nodes.size(), numNodes, nodes != nullptr,
           [&](size_t i) { nodes[i] = hGraph->nodes[i].get(); });
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphGetRootNodes, (CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes),
           (hGraph, rootNodes, numRootNodes)) {
  const Locked locked;
  if (!gpusim::IsLive(hGraph) || numRootNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> roots;
  for (const auto& node : hGraph->nodes) {
    if (node->dependencies.empty()) roots.push_back(node.get());
  }
  FillList(roots.size(), numRootNodes, rootNodes != nullptr, [&](size_t i) { rootNodes[i] = roots[i]; });
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphGetEdges_v2,
           (CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData, size_t* numEdges),
           (hGraph, from, to, edgeData, numEdges)) {
  const Locked locked;
  if (!gpusim::IsLive(hGraph) || numEdges == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<CUgraphNode, CUgraphNode>> edges;
  for (const auto& node : hGraph->nodes) {
    for (CUgraphNode dependency : node->dependencies) edges.emplace_back(dependency, node.get());
  }
  FillList(edges.size(), numEdges, from != nullptr && to != nullptr, [&](size_t i) {
    from[i] = edges[i].first;
    to[i] = edges[i].second;
    if (edgeData != nullptr) edgeData[i] = CUgraphEdgeData{};
  });
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphNodeGetDependencies_v2,
           (CUgraphNode hNode, CUgraphNode* dependencies, CUgraphEdgeData* edgeData, size_t* numDependencies),
           (hNode, dependencies, edgeData, numDependencies)) {
  const Locked locked;
  if (!gpusim::IsLiveNodeLocked(hNode) || numDependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FillList(hNode->dependencies.size(), numDependencies, dependencies != nullptr, [&](size_t i) {
    dependencies[i] = hNode->dependencies[i];
    if (edgeData != nullptr) edgeData[i] = CUgraphEdgeData{};
  });
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphInstantiateWithFlags, (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
           (phGraphExec, hGraph, flags)) {
  return gpusim::Instantiate(hGraph, flags, phGraphExec);
}

DRIVER_STREAM_API(cuGraphInstantiateWithParams, _ptsz,
                  (CUgraphExec * phGraphExec, CUgraph hGraph,
                   CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams),
                  (phGraphExec, hGraph, instantiateParams)) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = gpusim::Instantiate(hGraph, instantiateParams->flags, phGraphExec);
  instantiateParams->hErrNode_out = nullptr;
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

DRIVER_API(cuGraphExecGetFlags, (CUgraphExec hGraphExec, cuuint64_t* flags), (hGraphExec, flags)) {
  const Locked locked;
  if (!gpusim::IsLive(hGraphExec) || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = hGraphExec->flags;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuGraphUpload, _ptsz, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream)) {
  {
    const Locked locked;
    if (!gpusim::IsLive(hGraphExec)) return CUDA_ERROR_INVALID_VALUE;
  }
  return gpusim::Issue(hStream, Work{}, CU_GRAPH_NODE_TYPE_EMPTY, nullptr);  // in order, and nothing to move
}

DRIVER_STREAM_API(cuGraphLaunch, _ptsz, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream)) {
  return gpusim::LaunchGraph(hGraphExec, hStream);
}

DRIVER_API(cuGraphExecDestroy, (CUgraphExec hGraphExec), (hGraphExec)) {
  return gpusim::DropExec(hGraphExec);
}

DRIVER_API(cuGraphExecUpdate_v2,
           (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo),
           (hGraphExec, hGraph, resultInfo)) {
  bool same_shape = false;
  const CUresult result = gpusim::UpdateExec(hGraphExec, hGraph, &same_shape);
  if (resultInfo != nullptr) {
    *resultInfo = CUgraphExecUpdateResultInfo{};
    resultInfo->result =
        same_shape ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  return result;
}

DRIVER_API(cuGraphExecKernelNodeSetParams_v2,
           (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams),
           (hGraphExec, hNode, nodeParams)) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUfunction function = nodeParams->func != nullptr ? nodeParams->func : nodeParams->kern;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  GPUSIM_CHECK(gpusim::MakeKernelWork(function,
                                      {{nodeParams->gridDimX, nodeParams->gridDimY, nodeParams->gridDimZ},
                                       {nodeParams->blockDimX, nodeParams->blockDimY, nodeParams->blockDimZ},
                                       nodeParams->sharedMemBytes},
                                      &work));
  return gpusim::ReplaceWork(hGraphExec, hNode, std::move(work));
}

DRIVER_API(cuGraphExecChildGraphNodeSetParams,
           (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph), (hGraphExec, hNode, childGraph)) {
  return gpusim::ReplaceChild(hGraphExec, hNode, childGraph);
}

// Supports only child graph nodes.
DRIVER_API(cuGraphExecNodeSetParams,
           (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams),
           (hGraphExec, hNode, nodeParams)) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodeParams->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_NOT_SUPPORTED;
  return gpusim::ReplaceChild(hGraphExec, hNode, nodeParams->graph.graph);
}

DRIVER_API(cuGraphNodeSetEnabled, (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled),
           (hGraphExec, hNode, isEnabled)) {
  return gpusim::EnableNode(hGraphExec, hNode, isEnabled != 0);
}

DRIVER_API(cuGraphNodeGetEnabled, (CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled),
           (hGraphExec, hNode, isEnabled)) {
  if (isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool enabled = false;
  GPUSIM_CHECK(gpusim::NodeIsEnabled(hGraphExec, hNode, &enabled));
  *isEnabled = enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamBeginCaptureToGraph, _ptsz,
                  (CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                   const CUgraphEdgeData* dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
                  (hStream, hGraph, dependencies, dependencyData, numDependencies, mode)) {
  if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return gpusim::BeginCapture(hStream, hGraph, dependencies, numDependencies, mode);
}

DRIVER_API(cuUserObjectCreate,
           (CUuserObject * object_out, void* ptr, CUhostFn destroy, unsigned int initialRefcount,
            unsigned int flags),
           (object_out, ptr, destroy, initialRefcount, flags)) {
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  const gpusim::Locked locked;
  *object_out = gpusim::NewUserObject(ptr, destroy, initialRefcount);
  return CUDA_SUCCESS;
}

DRIVER_API(cuUserObjectRetain, (CUuserObject object, unsigned int count), (object, count)) {
  const gpusim::Locked locked;
  return gpusim::RetainUserObjectLocked(object, count);
}

DRIVER_API(cuUserObjectRelease, (CUuserObject object, unsigned int count), (object, count)) {
  const gpusim::Locked locked;
  return gpusim::ReleaseUserObjectLocked(object, count, nullptr);
}

DRIVER_API(cuGraphRetainUserObject,
           (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags),
           (graph, object, count, flags)) {
  if (flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  const gpusim::Locked locked;
  return gpusim::RetainInGraphLocked(graph, object, count, flags == CU_GRAPH_USER_OBJECT_MOVE);
}

DRIVER_API(cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object, unsigned int count),
           (graph, object, count)) {
  const gpusim::Locked locked;
  return gpusim::ReleaseInGraphLocked(graph, object, count);
}
