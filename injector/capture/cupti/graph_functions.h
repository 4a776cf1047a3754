// Lists the driver functions that make and update executable graphs and that nest graphs, in all their forms,
// and what their arguments have in common.
//
// One list for launches.h, executable_graphs.h and graph_calls.h, which each follow some of them. Thread,
// allocation, failure: constants.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <cstddef>

namespace gpuprobe::injector {

// All forms of cuGraphInstantiate begin alike.
struct InstantiateArguments {
  CUgraphExec* exec;
  CUgraph graph;
};
struct UpdateArguments {
  CUgraphExec exec;
  CUgraph graph;
};
struct AddNodeArguments {
  CUgraphNode* node;
  CUgraph graph;
};
#define GPUPROBE_SAME_PLACE(params, member, arguments, as) \
  static_assert(offsetof(params, member) == offsetof(arguments, as))
GPUPROBE_SAME_PLACE(cuGraphInstantiate_params, phGraphExec, InstantiateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphInstantiate_params, hGraph, InstantiateArguments, graph);
GPUPROBE_SAME_PLACE(cuGraphInstantiate_v2_params, phGraphExec, InstantiateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphInstantiate_v2_params, hGraph, InstantiateArguments, graph);
GPUPROBE_SAME_PLACE(cuGraphInstantiateWithFlags_params, phGraphExec, InstantiateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphInstantiateWithFlags_params, hGraph, InstantiateArguments, graph);
GPUPROBE_SAME_PLACE(cuGraphExecUpdate_params, hGraphExec, UpdateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphExecUpdate_params, hGraph, UpdateArguments, graph);
GPUPROBE_SAME_PLACE(cuGraphAddChildGraphNode_params, phGraphNode, AddNodeArguments, node);
GPUPROBE_SAME_PLACE(cuGraphAddChildGraphNode_params, hGraph, AddNodeArguments, graph);
static_assert(offsetof(cuGraphLaunch_params, hGraph) == offsetof(cuGraphLaunch_ptsz_params, hGraphExec));
#if CUDA_VERSION >= 12000
GPUPROBE_SAME_PLACE(cuGraphInstantiateWithParams_params, phGraphExec, InstantiateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphInstantiateWithParams_params, hGraph, InstantiateArguments, graph);
GPUPROBE_SAME_PLACE(cuGraphInstantiateWithParams_ptsz_params, phGraphExec, InstantiateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphInstantiateWithParams_ptsz_params, hGraph, InstantiateArguments, graph);
GPUPROBE_SAME_PLACE(cuGraphExecUpdate_v2_params, hGraphExec, UpdateArguments, exec);
GPUPROBE_SAME_PLACE(cuGraphExecUpdate_v2_params, hGraph, UpdateArguments, graph);
#endif
#undef GPUPROBE_SAME_PLACE

inline constexpr CUpti_CallbackId kGraphInstantiations[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate_v2,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags,
#if CUDA_VERSION >= 12000
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams,
    CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams_ptsz,
#endif
};

inline constexpr CUpti_CallbackId kGraphUpdates[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate,
#if CUDA_VERSION >= 12000
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2,
#endif
};

inline constexpr CUpti_CallbackId kGraphLaunches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

}  // namespace gpuprobe::injector
