// Graphs: nodes, capture, instantiation, and the launch that turns nodes into operations.
//
// An executable graph is a flattened copy: child graphs are opened, every node gets an id of its own, and
// each launch issues one operation a node under the launch's correlation id. Of the nodes of child graphs
// CUPTI hears of copies that never run.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/sim/core/objects.h"
#include "tests/sim/core/schedule.h"

struct CUgraphNode_st {
  CUgraph graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  uint64_t id = 0;
  std::vector<CUgraphNode> dependencies;
  gpusim::Work work;
  CUevent event = nullptr;
  CUgraph child = nullptr;
  bool enabled = true;    // in an executable graph: false: the node does nothing
  bool captured = false;  // not added by hand
  // For a node that allocates or releases.
  uint64_t memory_address = 0;
  uint64_t memory_bytes = 0;
  int memory_device = 0;
  CUgraphNode original = nullptr;  // the node that this one was cloned from
  uint64_t source_id = 0;          // of the node that it was copied or last updated from, and of its graph
  uint32_t source_graph = 0;
  CUgraphNode through = nullptr;  // in an executable graph: the outermost child graph node that holds it
};

// An application's object, destroyed once no graph refers to it any more.
struct CUuserObject_st {
  void* object = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t references = 0;
};

struct CUgraph_st {
  uint32_t id = 0;
  CUgraphNode owner = nullptr;  // of a child graph: the node that holds it
  std::vector<std::unique_ptr<CUgraphNode_st>>
      nodes;  // in order of creation; of an executable graph, in order of dependency
  std::map<CUuserObject, uint64_t> objects;  // with the references that it holds
};

struct CUgraphExec_st {
  CUgraph graph = nullptr;  // the flattened copy
  unsigned long long flags = 0;
  gpusim::OpPtr last;  // launches of one executable graph follow each other
};

namespace gpusim {

CUgraph NewGraph();
// What it refers to may be destroyed once `after` (may be null) has ended.
void DropGraph(CUgraph graph, const OpPtr& after = nullptr);
bool IsLive(CUgraph graph);
bool IsLive(CUgraphExec exec);

// With the mutex held. The caller notifies with NotifyNode after it let the mutex go.
CUgraphNode AddNodeLocked(CUgraph graph, CUgraphNodeType type, Work work,
                          const std::vector<CUgraphNode>& dependencies);
CUresult AddNode(CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraphNodeType type,
                 Work work, CUevent event, CUgraphNode* node);
// Its graph is a copy of `child`, or `child` itself if it is moved: a graph that allocates can only be moved.
CUresult AddChildNode(CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child, bool move,
                      CUgraphNode* node);
// A node that allocates (and gets its address) or releases.
CUresult AddMemoryNode(CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraphNodeType type,
                       int device, uint64_t bytes, CUdeviceptr* address, CUgraphNode* node);
void NotifyNode(CUgraphNode node);
bool IsLiveNodeLocked(CUgraphNode node);
CUresult AddDependencyLocked(CUgraph graph, CUgraphNode from, CUgraphNode to);

// user_object.cc. With the mutex held.
CUuserObject NewUserObject(void* object, CUhostFn destroy, unsigned references);
CUresult RetainUserObjectLocked(CUuserObject object, uint64_t count);
// The last one destroys it, on the thread for host functions, once `after` (may be null) has ended.
CUresult ReleaseUserObjectLocked(CUuserObject object, uint64_t count, const OpPtr& after);
CUresult RetainInGraphLocked(CUgraph graph, CUuserObject object, unsigned count, bool move);
CUresult ReleaseInGraphLocked(CUgraph graph, CUuserObject object, unsigned count);
// A copy refers to what the original refers to.
void RetainObjectsOfLocked(CUgraph graph, CUgraph copy);
void ReleaseObjectsLocked(CUgraph graph, const OpPtr& after);

CUresult Instantiate(CUgraph graph, unsigned long long flags, CUgraphExec* exec);
CUresult LaunchGraph(CUgraphExec exec, CUstream stream);
CUresult DropExec(CUgraphExec exec);
// The executable graph's copy of a node does other work from the next launch on.
CUresult ReplaceWork(CUgraphExec exec, CUgraphNode original, Work work);
// As if the child graph's node had held `child` when the graph was instantiated, if it has the same shape.
CUresult ReplaceChild(CUgraphExec exec, CUgraphNode original, CUgraph child);
CUresult EnableNode(CUgraphExec exec, CUgraphNode original, bool enabled);
CUresult NodeIsEnabled(CUgraphExec exec, CUgraphNode original, bool* enabled);
// Takes over the work of `graph`, if it has the same shape.
CUresult UpdateExec(CUgraphExec exec, CUgraph graph, bool* same_shape);
CUgraph CloneGraph(CUgraph graph);  // null: it cannot be cloned
CUgraphNode FindInCloneLocked(CUgraph clone, CUgraphNode original);

}  // namespace gpusim
