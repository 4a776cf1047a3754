// Graphs.
#include "tests/sim/core/array.h"
#include "tests/sim/cudart/api.h"
#include "tests/sim/cudart/descriptors.h"

using gpusim::cudart::Device;
using gpusim::cudart::FromDriver;
using gpusim::cudart::Ready;

namespace {

CUDA_KERNEL_NODE_PARAMS DriverParams(const cudaKernelNodeParams& runtime) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = gpusim::cudart::FunctionOfEntry(runtime.func);
  params.gridDimX = runtime.gridDim.x;
  params.gridDimY = runtime.gridDim.y;
  params.gridDimZ = runtime.gridDim.z;
  params.blockDimX = runtime.blockDim.x;
  params.blockDimY = runtime.blockDim.y;
  params.blockDimZ = runtime.blockDim.z;
  params.sharedMemBytes = runtime.sharedMemBytes;
  params.kernelParams = runtime.kernelParams;
  params.extra = runtime.extra;
  return params;
}

}  // namespace

RUNTIME_API(cudaGraphCreate, 10000, (cudaGraph_t * pGraph, unsigned int flags), (pGraph, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphCreate(pGraph, flags));
}

RUNTIME_API(cudaGraphDestroy, 10000, (cudaGraph_t graph), (graph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphDestroy(graph));
}

RUNTIME_API(cudaGraphClone, 10000, (cudaGraph_t * pGraphClone, cudaGraph_t originalGraph),
            (pGraphClone, originalGraph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphClone(pGraphClone, originalGraph));
}

RUNTIME_API(cudaGraphAddKernelNode, 10000,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, const struct cudaKernelNodeParams* pNodeParams),
            (pGraphNode, graph, pDependencies, numDependencies, pNodeParams)) {
  GPUSIM_RETURN_IF(Ready());
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  const CUDA_KERNEL_NODE_PARAMS params = DriverParams(*pNodeParams);
  if (params.func == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuGraphAddKernelNode_v2(pGraphNode, graph, pDependencies, numDependencies, &params));
}

RUNTIME_API(cudaGraphExecKernelNodeSetParams, 10010,
            (cudaGraphExec_t hGraphExec, cudaGraphNode_t node, const struct cudaKernelNodeParams* nodeParams),
            (hGraphExec, node, nodeParams)) {
  GPUSIM_RETURN_IF(Ready());
  if (nodeParams == nullptr) return cudaErrorInvalidValue;
  const CUDA_KERNEL_NODE_PARAMS params = DriverParams(*nodeParams);
  if (params.func == nullptr) return cudaErrorInvalidDeviceFunction;
  return FromDriver(cuGraphExecKernelNodeSetParams_v2(hGraphExec, node, &params));
}

RUNTIME_API(cudaGraphAddMemAllocNode, 11040,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, struct cudaMemAllocNodeParams* nodeParams),
            (pGraphNode, graph, pDependencies, numDependencies, nodeParams)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddMemAllocNode(pGraphNode, graph, pDependencies, numDependencies,
                                           reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(nodeParams)));
}

RUNTIME_API(cudaGraphAddMemFreeNode, 11040,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, void* dptr),
            (pGraphNode, graph, pDependencies, numDependencies, dptr)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddMemFreeNode(pGraphNode, graph, pDependencies, numDependencies, Device(dptr)));
}

RUNTIME_API(cudaGraphAddNode, 12030,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             const cudaGraphEdgeData* dependencyData, size_t numDependencies,
             struct cudaGraphNodeParams* nodeParams),
            (pGraphNode, graph, pDependencies, dependencyData, numDependencies, nodeParams)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddNode_v2(pGraphNode, graph, pDependencies,
                                      reinterpret_cast<const CUgraphEdgeData*>(dependencyData),
                                      numDependencies, reinterpret_cast<CUgraphNodeParams*>(nodeParams)));
}

RUNTIME_API(cudaDeviceGraphMemTrim, 11040, (int device), (device)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuDeviceGraphMemTrim(device));
}

RUNTIME_API(cudaDeviceGetGraphMemAttribute, 11040,
            (int device, enum cudaGraphMemAttributeType attr, void* value), (device, attr, value)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuDeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attr), value));
}

RUNTIME_API(cudaDeviceSetGraphMemAttribute, 11040,
            (int device, enum cudaGraphMemAttributeType attr, void* value), (device, attr, value)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attr), value));
}

RUNTIME_API(cudaGraphAddMemcpyNode1D, 11010,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, void* dst, const void* src, size_t count, enum cudaMemcpyKind kind),
            (pGraphNode, graph, pDependencies, numDependencies, dst, src, count, kind)) {
  GPUSIM_RETURN_IF(Ready());
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = Device(src);
  copy.dstDevice = Device(dst);
  copy.WidthInBytes = count;
  copy.Height = 1;
  copy.Depth = 1;
  return FromDriver(cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy,
                                         gpusim::CurrentContextOrNull()));
}

RUNTIME_API(cudaGraphAddMemsetNode, 10000,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, const struct cudaMemsetParams* pMemsetParams),
            (pGraphNode, graph, pDependencies, numDependencies, pMemsetParams)) {
  GPUSIM_RETURN_IF(Ready());
  if (pMemsetParams == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = Device(pMemsetParams->dst);
  params.pitch = pMemsetParams->pitch;
  params.value = pMemsetParams->value;
  params.elementSize = pMemsetParams->elementSize;
  params.width = pMemsetParams->width;
  params.height = pMemsetParams->height;
  return FromDriver(cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies, &params,
                                         gpusim::CurrentContextOrNull()));
}

RUNTIME_API(cudaGraphAddHostNode, 10000,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, const struct cudaHostNodeParams* pNodeParams),
            (pGraphNode, graph, pDependencies, numDependencies, pNodeParams)) {
  GPUSIM_RETURN_IF(Ready());
  if (pNodeParams == nullptr) return cudaErrorInvalidValue;
  const CUDA_HOST_NODE_PARAMS params{pNodeParams->fn, pNodeParams->userData};
  return FromDriver(cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies, &params));
}

RUNTIME_API(cudaGraphAddEmptyNode, 10000,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies),
            (pGraphNode, graph, pDependencies, numDependencies)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies));
}

RUNTIME_API(cudaGraphAddEventRecordNode, 11010,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, cudaEvent_t event),
            (pGraphNode, graph, pDependencies, numDependencies, event)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddEventRecordNode(pGraphNode, graph, pDependencies, numDependencies, event));
}

RUNTIME_API(cudaGraphAddEventWaitNode, 11010,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, cudaEvent_t event),
            (pGraphNode, graph, pDependencies, numDependencies, event)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddEventWaitNode(pGraphNode, graph, pDependencies, numDependencies, event));
}

RUNTIME_API(cudaGraphAddChildGraphNode, 10000,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t* pDependencies,
             size_t numDependencies, cudaGraph_t childGraph),
            (pGraphNode, graph, pDependencies, numDependencies, childGraph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies, numDependencies, childGraph));
}

RUNTIME_API(cudaGraphAddDependencies, 12030,
            (cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
             const cudaGraphEdgeData* edgeData, size_t numDependencies),
            (graph, from, to, edgeData, numDependencies)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphAddDependencies_v2(
      graph, from, to, reinterpret_cast<const CUgraphEdgeData*>(edgeData), numDependencies));
}

RUNTIME_API(cudaGraphNodeGetType, 10000, (cudaGraphNode_t node, enum cudaGraphNodeType* pType),
            (node, pType)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(pType)));
}

RUNTIME_API(cudaGraphGetNodes, 10000, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes),
            (graph, nodes, numNodes)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphGetNodes(graph, nodes, numNodes));
}

RUNTIME_API(cudaGraphGetRootNodes, 10000,
            (cudaGraph_t graph, cudaGraphNode_t* pRootNodes, size_t* pNumRootNodes),
            (graph, pRootNodes, pNumRootNodes)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphGetRootNodes(graph, pRootNodes, pNumRootNodes));
}

RUNTIME_API(cudaGraphGetEdges, 12030,
            (cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* edgeData,
             size_t* numEdges),
            (graph, from, to, edgeData, numEdges)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuGraphGetEdges_v2(graph, from, to, reinterpret_cast<CUgraphEdgeData*>(edgeData), numEdges));
}

RUNTIME_API(cudaGraphNodeGetDependencies, 12030,
            (cudaGraphNode_t node, cudaGraphNode_t* pDependencies, cudaGraphEdgeData* edgeData,
             size_t* pNumDependencies),
            (node, pDependencies, edgeData, pNumDependencies)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphNodeGetDependencies_v2(
      node, pDependencies, reinterpret_cast<CUgraphEdgeData*>(edgeData), pNumDependencies));
}

RUNTIME_API(cudaGraphInstantiate, 12000,
            (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
            (pGraphExec, graph, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

RUNTIME_API(cudaGraphInstantiateWithFlags, 11040,
            (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
            (pGraphExec, graph, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

RUNTIME_STREAM_API(cudaGraphInstantiateWithParams, 12000, _ptsz, 12000,
                   (cudaGraphExec_t * pGraphExec, cudaGraph_t graph,
                    cudaGraphInstantiateParams* instantiateParams),
                   (pGraphExec, graph, instantiateParams)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphInstantiateWithParams(
      pGraphExec, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(instantiateParams)));
}

RUNTIME_STREAM_API(cudaGraphUpload, 10000, _ptsz, 10000, (cudaGraphExec_t graphExec, cudaStream_t stream),
                   (graphExec, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphUpload(graphExec, stream));
}

RUNTIME_STREAM_API(cudaGraphLaunch, 10000, _ptsz, 10000, (cudaGraphExec_t graphExec, cudaStream_t stream),
                   (graphExec, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphLaunch(graphExec, stream));
}

RUNTIME_API(cudaGraphExecDestroy, 10000, (cudaGraphExec_t graphExec), (graphExec)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphExecDestroy(graphExec));
}

RUNTIME_API(cudaGraphExecUpdate, 10020,
            (cudaGraphExec_t hGraphExec, cudaGraph_t hGraph, cudaGraphExecUpdateResultInfo* resultInfo),
            (hGraphExec, hGraph, resultInfo)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuGraphExecUpdate_v2(hGraphExec, hGraph, reinterpret_cast<CUgraphExecUpdateResultInfo*>(resultInfo)));
}

RUNTIME_API(cudaGraphChildGraphNodeGetGraph, 10000, (cudaGraphNode_t node, cudaGraph_t* pGraph),
            (node, pGraph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphChildGraphNodeGetGraph(node, pGraph));
}

RUNTIME_API(cudaGraphNodeFindInClone, 10000,
            (cudaGraphNode_t * pNode, cudaGraphNode_t originalNode, cudaGraph_t clonedGraph),
            (pNode, originalNode, clonedGraph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphNodeFindInClone(pNode, originalNode, clonedGraph));
}

RUNTIME_API(cudaGraphExecChildGraphNodeSetParams, 11010,
            (cudaGraphExec_t hGraphExec, cudaGraphNode_t node, cudaGraph_t childGraph),
            (hGraphExec, node, childGraph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphExecChildGraphNodeSetParams(hGraphExec, node, childGraph));
}

RUNTIME_API(cudaGraphExecNodeSetParams, 12020,
            (cudaGraphExec_t graphExec, cudaGraphNode_t node, struct cudaGraphNodeParams* nodeParams),
            (graphExec, node, nodeParams)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuGraphExecNodeSetParams(graphExec, node, reinterpret_cast<CUgraphNodeParams*>(nodeParams)));
}

RUNTIME_API(cudaGraphNodeSetEnabled, 11060,
            (cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode, unsigned int isEnabled),
            (hGraphExec, hNode, isEnabled)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled));
}

RUNTIME_API(cudaGraphNodeGetEnabled, 11060,
            (cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode, unsigned int* isEnabled),
            (hGraphExec, hNode, isEnabled)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphNodeGetEnabled(hGraphExec, hNode, isEnabled));
}

RUNTIME_STREAM_API(cudaStreamBeginCaptureToGraph, 12030, _ptsz, 12030,
                   (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                    const cudaGraphEdgeData* dependencyData, size_t numDependencies,
                    enum cudaStreamCaptureMode mode),
                   (stream, graph, dependencies, dependencyData, numDependencies, mode)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamBeginCaptureToGraph(stream, graph, dependencies,
                                                reinterpret_cast<const CUgraphEdgeData*>(dependencyData),
                                                numDependencies, static_cast<CUstreamCaptureMode>(mode)));
}

RUNTIME_API(cudaUserObjectCreate, 11030,
            (cudaUserObject_t * object_out, void* ptr, cudaHostFn_t destroy, unsigned int initialRefcount,
             unsigned int flags),
            (object_out, ptr, destroy, initialRefcount, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuUserObjectCreate(object_out, ptr, destroy, initialRefcount, flags));
}

RUNTIME_API(cudaUserObjectRetain, 11030, (cudaUserObject_t object, unsigned int count), (object, count)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuUserObjectRetain(object, count));
}

RUNTIME_API(cudaUserObjectRelease, 11030, (cudaUserObject_t object, unsigned int count), (object, count)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuUserObjectRelease(object, count));
}

RUNTIME_API(cudaGraphRetainUserObject, 11030,
            (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags),
            (graph, object, count, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphRetainUserObject(graph, object, count, flags));
}

RUNTIME_API(cudaGraphReleaseUserObject, 11030,
            (cudaGraph_t graph, cudaUserObject_t object, unsigned int count), (graph, object, count)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuGraphReleaseUserObject(graph, object, count));
}
