#include "tests/sim/core/graph.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "tests/sim/core/graph_memory.h"
#include "tests/sim/core/trace.h"

namespace gpusim {
namespace {

std::atomic<uint32_t> next_graph_id{1};
std::atomic<uint64_t> next_node_id{1};

struct Live {
  std::set<CUgraph> graphs;
  std::set<CUgraphExec> execs;
  std::set<const CUgraphNode_st*> nodes;
};

Live& LiveGraphs() {
  static auto* live = new Live;
  return *live;
}

using NodeMap =
    std::map<CUgraphNode, std::vector<CUgraphNode>>;  // a node, and what its dependents wait for in the copy

CUgraphNode CopyNodeLocked(CUgraphNode node, CUgraph into, const NodeMap& copies,
                           const std::vector<CUgraphNode>& roots_wait_for) {
  std::vector<CUgraphNode> dependencies;
  for (CUgraphNode dependency : node->dependencies) {
    const auto found = copies.find(dependency);
    if (found != copies.end())
      dependencies.insert(dependencies.end(), found->second.begin(), found->second.end());
  }
  if (node->dependencies.empty()) dependencies = roots_wait_for;
  CUgraphNode copy = AddNodeLocked(into, node->type, node->work, dependencies);
  copy->event = node->event;
  copy->memory_address = node->memory_address;
  copy->memory_bytes = node->memory_bytes;
  copy->memory_device = node->memory_device;
  copy->enabled = node->enabled;
  copy->original = node;
  copy->source_id = node->id;
  copy->source_graph = node->graph->id;
  return copy;
}

// Every node after those that it depends on.
std::vector<CUgraphNode> InOrderLocked(CUgraph graph) {
  std::vector<CUgraphNode> order;
  std::set<CUgraphNode> placed;
  while (order.size() < graph->nodes.size()) {
    const size_t before = order.size();
    for (const auto& node : graph->nodes) {
      if (placed.count(node.get()) != 0) continue;
      const bool ready =
          std::all_of(node->dependencies.begin(), node->dependencies.end(),
                      [&placed](CUgraphNode dependency) { return placed.count(dependency) != 0; });
      if (!ready) continue;
      order.push_back(node.get());
      placed.insert(node.get());
    }
    if (order.size() == before) break;  // AddDependencyLocked lets no cycle in
  }
  return order;
}

bool Reaches(CUgraphNode from, CUgraphNode to) {
  std::vector<CUgraphNode> open{from};
  std::set<CUgraphNode> seen;
  while (!open.empty()) {
    CUgraphNode node = open.back();
    open.pop_back();
    if (node == to) return true;
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  return false;
}

void HoldChildLocked(CUgraphNode node, CUgraph child) {
  node->child = child;
  child->owner = node;
}

// Copies `graph` into `into`, child graphs opened if `flatten`; returns what a dependent of the whole waits
// for. `through`: the child graph's node that is being opened.
std::vector<CUgraphNode> CopyNodesLocked(CUgraph graph, CUgraph into, bool flatten,
                                         const std::vector<CUgraphNode>& roots_wait_for,
                                         CUgraphNode through = nullptr) {
  NodeMap copies;
  std::set<CUgraphNode> leaves;
  RetainObjectsOfLocked(graph, into);
  for (CUgraphNode node : InOrderLocked(graph)) {
    CUgraphNode copy = CopyNodeLocked(node, into, copies, roots_wait_for);
    copy->through = through;
    std::vector<CUgraphNode> ends{copy};
    if (node->child != nullptr && flatten) {
      copy->type = CU_GRAPH_NODE_TYPE_EMPTY;
      ends = CopyNodesLocked(node->child, into, true, {copy}, through != nullptr ? through : node);
    } else if (node->child != nullptr) {
      HoldChildLocked(copy, NewGraph());
      CopyNodesLocked(node->child, copy->child, false, {});
    }
    for (CUgraphNode dependency : copy->dependencies) leaves.erase(dependency);
    leaves.insert(ends.begin(), ends.end());
    copies[node] = ends;
  }
  if (leaves.empty()) return roots_wait_for;
  return {leaves.begin(), leaves.end()};
}

void NotifyGraph(ResourceEvent event, CUgraph graph, CUgraph original, CUgraphNode node) {
  const CuptiHooks* hooks = cupti_hooks.load(std::memory_order_acquire);
  if (hooks == nullptr || hooks->resource == nullptr) return;
  Resource resource;
  resource.event = event;
  resource.context = CurrentContextOrNull();
  resource.graph = graph;
  resource.original_graph = original;
  resource.node = node;
  if (node != nullptr) {
    resource.original_node = node->original;
    resource.node_id = node->id;
    resource.node_type = static_cast<int>(node->type);
  }
  hooks->resource(resource);
}

// Before: the mutex is free. A new graph is in nobody else's hands yet.
void NotifyClones(CUgraph copy, CUgraph original) {
  NotifyGraph(ResourceEvent::kGraphCloned, copy, original, nullptr);
  for (const auto& node : copy->nodes) {
    // The copy of an opened child graph's node is not of the graph that was copied.
    NotifyGraph(ResourceEvent::kGraphNodeCloned, copy, node->original->graph, node.get());
    if (node->child != nullptr) NotifyClones(node->child, node->original->child);
  }
}

// As CUPTI 13.0.1 on an H100: nodes of child graphs are reported as copies in graphs of their own, which are
// dissolved, and run under the executable graph's next numbers, which are not reported.
void NotifyInstantiation(CUgraph executable, CUgraph original, CUgraph unopened) {
  NotifyGraph(ResourceEvent::kGraphCloned, executable, original, nullptr);
  for (const auto& node : executable->nodes) {
    if (node->through == nullptr)
      NotifyGraph(ResourceEvent::kGraphNodeCloned, executable, node->original->graph, node.get());
  }
  for (const auto& node : unopened->nodes) {
    if (node->child != nullptr) NotifyClones(node->child, node->original->child);
  }
}

bool AllocatesLocked(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (node->child != nullptr && AllocatesLocked(*node->child));
  });
}

CUresult CheckPlaceLocked(CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  if (!IsLive(graph)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (LiveGraphs().nodes.count(dependencies[i]) == 0 || dependencies[i]->graph != graph)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The executable graph's copy of a node.
CUgraphNode CopyInLocked(CUgraphExec exec, CUgraphNode original) {
  if (!IsLive(exec)) return nullptr;
  for (const auto& node : exec->graph->nodes) {
    if (node->original == original) return node.get();
  }
  return nullptr;
}

// Does what another node does from now on.
void TakeWork(CUgraphNode_st& node, const CUgraphNode_st& from) {
  node.work = from.work;
  node.event = from.event;
  node.source_id = from.source_id;
  node.source_graph = from.source_graph;
}

}  // namespace

CUgraph NewGraph() {
  auto* graph = new CUgraph_st;
  graph->id = next_graph_id.fetch_add(1);
  LiveGraphs().graphs.insert(graph);
  return graph;
}

void DropGraph(CUgraph graph, const OpPtr& after) {
  for (const auto& node : graph->nodes) {
    LiveGraphs().nodes.erase(node.get());
    if (node->child != nullptr) DropGraph(node->child, after);
  }
  ReleaseObjectsLocked(graph, after);
  LiveGraphs().graphs.erase(graph);
  delete graph;
}

bool IsLive(CUgraph graph) { return LiveGraphs().graphs.count(graph) != 0; }
bool IsLive(CUgraphExec exec) { return LiveGraphs().execs.count(exec) != 0; }

uint32_t GraphId(void* graph) {
  const Locked locked;
  auto* known = static_cast<CUgraph>(graph);
  if (IsLive(known)) return known->id;
  auto* exec = static_cast<CUgraphExec>(graph);
  return IsLive(exec) ? exec->graph->id : 0;
}

uint64_t GraphNodeId(void* node) {
  const Locked locked;
  const auto* known = static_cast<const CUgraphNode_st*>(node);
  return LiveGraphs().nodes.count(known) != 0 ? known->id : 0;
}

CUgraphNode AddNodeLocked(CUgraph graph, CUgraphNodeType type, Work work,
                          const std::vector<CUgraphNode>& dependencies) {
  auto node = std::make_unique<CUgraphNode_st>();
  node->graph = graph;
  node->type = type;
  node->id = next_node_id.fetch_add(1);
  node->work = std::move(work);
  node->dependencies = dependencies;
  graph->nodes.push_back(std::move(node));
  LiveGraphs().nodes.insert(graph->nodes.back().get());
  return graph->nodes.back().get();
}

void NotifyNode(CUgraphNode node) {
  NotifyGraph(ResourceEvent::kGraphNodeCreated, node->graph, nullptr, node);
}

bool IsLiveNodeLocked(CUgraphNode node) { return LiveGraphs().nodes.count(node) != 0; }

CUresult AddDependencyLocked(CUgraph graph, CUgraphNode from, CUgraphNode to) {
  if (!IsLiveNodeLocked(from) || !IsLiveNodeLocked(to) || from->graph != graph || to->graph != graph)
    return CUDA_ERROR_INVALID_VALUE;
  if (Reaches(from, to)) return CUDA_ERROR_INVALID_VALUE;  // a cycle
  to->dependencies.push_back(from);
  return CUDA_SUCCESS;
}

CUresult AddNode(CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraphNodeType type,
                 Work work, CUevent event, CUgraphNode* node) {
  if (node == nullptr || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  {
    const Locked locked;
    const CUresult refused = CheckPlaceLocked(graph, dependencies, count);
    if (refused != CUDA_SUCCESS) return refused;
    *node = AddNodeLocked(graph, type, std::move(work),
                          std::vector<CUgraphNode>(dependencies, dependencies + count));
    (*node)->event = event;
  }
  NotifyNode(*node);
  return CUDA_SUCCESS;
}

CUresult AddChildNode(CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child, bool move,
                      CUgraphNode* node) {
  if (node == nullptr || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  {
    const Locked locked;
    const CUresult refused = CheckPlaceLocked(graph, dependencies, count);
    if (refused != CUDA_SUCCESS) return refused;
    if (!IsLive(child) || child == graph || (move ? child->owner != nullptr : AllocatesLocked(*child)))
      return CUDA_ERROR_INVALID_VALUE;
    *node = AddNodeLocked(graph, CU_GRAPH_NODE_TYPE_GRAPH, Work{},
                          std::vector<CUgraphNode>(dependencies, dependencies + count));
    HoldChildLocked(*node, move ? child : NewGraph());
    if (!move) CopyNodesLocked(child, (*node)->child, false, {});
  }
  if (!move) NotifyClones((*node)->child, child);
  NotifyNode(*node);
  return CUDA_SUCCESS;
}

CUresult AddMemoryNode(CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraphNodeType type,
                       int device, uint64_t bytes, CUdeviceptr* address, CUgraphNode* node) {
  if (node == nullptr || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  {
    const Locked locked;
    const CUresult refused = CheckPlaceLocked(graph, dependencies, count);
    if (refused != CUDA_SUCCESS) return refused;
    if (graph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;  // of a child graph
    *node = AddNodeLocked(graph, type, Work{}, std::vector<CUgraphNode>(dependencies, dependencies + count));
    (*node)->memory_address = *address;
    (*node)->memory_bytes = bytes;
    (*node)->memory_device = device;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) PlaceGraphMemoryLocked(*node);
    *address = (*node)->memory_address;
  }
  NotifyNode(*node);
  return CUDA_SUCCESS;
}

CUgraph CloneGraph(CUgraph graph) {
  CUgraph copy = nullptr;
  {
    const Locked locked;
    if (!IsLive(graph) || AllocatesLocked(*graph)) return nullptr;
    copy = NewGraph();
    CopyNodesLocked(graph, copy, false, {});
  }
  NotifyClones(copy, graph);
  return copy;
}

CUgraphNode FindInCloneLocked(CUgraph clone, CUgraphNode original) {
  if (!IsLive(clone)) return nullptr;
  for (const auto& node : clone->nodes) {
    if (node->original == original) return node.get();
  }
  return nullptr;
}

CUresult Instantiate(CUgraph graph, unsigned long long flags, CUgraphExec* exec) {
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* created = new CUgraphExec_st;
  CUgraph unopened = nullptr;
  {
    const Locked locked;
    if (!IsLive(graph) || graph->owner != nullptr) {
      delete created;
      return CUDA_ERROR_INVALID_VALUE;
    }
    created->flags = flags;
    created->graph = NewGraph();
    CopyNodesLocked(graph, created->graph, true, {});
    for (const auto& node : created->graph->nodes) {
      if (node->through != nullptr) node->id = next_node_id.fetch_add(1);
    }
    unopened = NewGraph();
    CopyNodesLocked(graph, unopened, false, {});
    LiveGraphs().execs.insert(created);
  }
  NotifyInstantiation(created->graph, graph, unopened);
  {
    const Locked locked;
    DropGraph(unopened);
  }
  NotifyGraph(ResourceEvent::kGraphExecCreated, created->graph, graph, nullptr);
  *exec = created;
  return CUDA_SUCCESS;
}

CUresult ReplaceWork(CUgraphExec exec, CUgraphNode original, Work work) {
  const Locked locked;
  CUgraphNode node = CopyInLocked(exec, original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->work = std::move(work);
  return CUDA_SUCCESS;
}

CUresult ReplaceChild(CUgraphExec exec, CUgraphNode original, CUgraph child) {
  const Locked locked;
  if (!IsLive(exec) || !IsLive(child)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode_st*> held;
  for (const auto& node : exec->graph->nodes) {
    if (node->through == original) held.push_back(node.get());
  }
  CUgraph flat = NewGraph();
  CopyNodesLocked(child, flat, true, {});
  const bool same_shape = !held.empty() && !AllocatesLocked(*child) &&
                          std::equal(held.begin(), held.end(), flat->nodes.begin(), flat->nodes.end(),
                                     [](const auto& a, const auto& b) { return a->type == b->type; });
  for (size_t i = 0; same_shape && i < held.size(); ++i) TakeWork(*held[i], *flat->nodes[i]);
  DropGraph(flat);
  return same_shape ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult EnableNode(CUgraphExec exec, CUgraphNode original, bool enabled) {
  const Locked locked;
  CUgraphNode node = CopyInLocked(exec, original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMSET &&
      node->type != CU_GRAPH_NODE_TYPE_MEMCPY)
    return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled;
  return CUDA_SUCCESS;
}

CUresult NodeIsEnabled(CUgraphExec exec, CUgraphNode original, bool* enabled) {
  const Locked locked;
  CUgraphNode node = CopyInLocked(exec, original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = node->enabled;
  return CUDA_SUCCESS;
}

CUresult DropExec(CUgraphExec exec) {
  ReturnGraphMemory(exec);
  const Locked locked;
  if (LiveGraphs().execs.erase(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
  DropGraph(exec->graph, exec->last);
  delete exec;
  return CUDA_SUCCESS;
}

CUresult UpdateExec(CUgraphExec exec, CUgraph graph, bool* same_shape) {
  const Locked locked;
  if (!IsLive(exec) || !IsLive(graph) || graph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraph flat = NewGraph();
  CopyNodesLocked(graph, flat, true, {});
  const auto& before = exec->graph->nodes;
  *same_shape = before.size() == flat->nodes.size();
  for (size_t i = 0; *same_shape && i < before.size(); ++i) {
    *same_shape = before[i]->type == flat->nodes[i]->type &&
                  before[i]->dependencies.size() == flat->nodes[i]->dependencies.size();
  }
  if (*same_shape) {
    for (size_t i = 0; i < before.size(); ++i) TakeWork(*before[i], *flat->nodes[i]);  // they keep their ids
    std::swap(exec->graph->objects, flat->objects);
  }
  DropGraph(flat);
  return *same_shape ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

namespace {

OpPtr NodeOpLocked(const CUgraphNode_st& node, const CUstream_st& stream, const CUgraph_st& graph,
                   uint32_t parts, uint32_t correlation, uint64_t issue_ns) {
  auto op = std::make_shared<Op>();
  if (!node.enabled) return op;
  op->work = node.work;
  Activity& activity = op->work.activity;
  activity.device = static_cast<uint32_t>(stream.context->device);
  activity.context_uid = stream.context->uid;
  activity.stream_id = stream.id;
  activity.correlation = correlation;
  activity.tid = static_cast<uint32_t>(gettid());
  activity.issue_ns = issue_ns;
  activity.graph = graph.id;
  activity.graph_parts = parts;
  activity.graph_node = node.id;
  activity.graph_node_source = node.source_id;
  activity.graph_source = node.source_graph;
  // Enqueued with the launch, however long the loop over the nodes takes: `begin` says when.
  if (op->work.rendezvous == nullptr) return op;
  op->meeting = op->work.rendezvous->factory(op->work.rendezvous->state.get());
  auto replay = std::make_shared<RendezvousLaunch>(*op->work.rendezvous);
  const uint64_t number = ++op->work.rendezvous->replays;
  for (CollectiveTruth& call : replay->calls) {
    call.replay = number;
    call.issue_ns = issue_ns;
  }
  op->work.rendezvous = std::move(replay);
  return op;
}

}  // namespace

CUresult LaunchGraph(CUgraphExec exec, CUstream handle) {
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  {
    const Locked locked;
    CUstream_st* stream = nullptr;
    const CUresult found = FindStreamLocked(handle, &stream);
    if (found != CUDA_SUCCESS) return found;
    const CUresult refused = RefuseInCaptureLocked(stream);
    if (refused != CUDA_SUCCESS) return refused;
  }
  const CUresult obtained = ObtainGraphMemory(exec);
  if (obtained != CUDA_SUCCESS) return obtained;
  Locked locked;
  if (!IsLive(exec)) return CUDA_ERROR_INVALID_VALUE;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  const uint32_t correlation = CurrentCorrelation();
  const uint64_t issue_ns = NowNs();
  const OpPtr begin = EnqueueLocked(stream, Work{}, {exec->last});
  const auto parts = static_cast<uint32_t>(
      std::count_if(exec->graph->nodes.begin(), exec->graph->nodes.end(),
                    [](const auto& node) { return node->enabled && node->work.reported; }));
  std::map<CUgraphNode, OpPtr> ops;
  std::vector<OpPtr> all{begin};
  for (const auto& node : exec->graph->nodes) {
    std::vector<OpPtr> dependencies{begin};
    for (CUgraphNode dependency : node->dependencies) dependencies.push_back(ops[dependency]);
    if (node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && node->event != nullptr)
      dependencies.push_back(node->event->record);
    OpPtr op = NodeOpLocked(*node, *stream, *exec->graph, parts, correlation, issue_ns);
    Schedule::Get().Submit(op, dependencies);
    if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && node->event != nullptr) node->event->record = op;
    ops[node.get()] = op;
    all.push_back(op);
  }
  exec->last = EnqueueLocked(stream, Work{}, all);
  return CUDA_SUCCESS;
}

}  // namespace gpusim
