// Maps the nodes of each CUDA graph to the plans of NCCL calls they carry. It is needed when an executable
// graph, or a child graph in it, is updated from another graph: its nodes keep their ids and carry the other
// graph's calls from then on.
//
// capture/nccl/captured_nodes.h serves application threads while nodes are made; here nothing is urgent, and
// nodes are known by their graph. CUDA pairs the nodes of the two graphs by the order in which they were
// made; this class does the same with those that carry calls. If their numbers differ, it is no longer known
// what the nodes carry, and their kernels are known only by name. The nodes of a child graph count as its
// parent's, in the place where it was added. Thread: the draining one. Allocation: mappings, on growth.
// Failure: nodes that do not fit are not updated; their plans become unknown.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/base/flat_map.h"

namespace gpuprobe::injector {

class GraphPlans {
 public:
  static constexpr size_t kMaxNodes = 4096;  // of one graph, that carry calls

  // `owner`: a graph's handle, or the call that copied the node. `original`: the node that it was copied
  // from, 0 if none.
  void NodeMade(uint64_t owner, uint64_t node, uint64_t original) noexcept;
  void Carries(uint64_t node, uint64_t plan, uint32_t copy = 0) noexcept;
  void Instantiated(uint64_t exec, uint64_t owner) noexcept;
  // The graph was cloned: the nodes that `owner` copied are its.
  void Cloned(uint64_t graph, uint64_t owner) noexcept { Adopt(graph, owner, kSomeChild); }
  // `child_node`, the handle of a node of the graph, holds the nodes of `owner`: the call that copied them,
  // or the child graph, if it was moved.
  void ChildAdded(uint64_t graph, uint64_t child_node, uint64_t owner) noexcept {
    Adopt(graph, owner, child_node);
  }
  void GraphEnded(uint64_t graph) noexcept { Forget(graph); }
  void ExecEnded(uint64_t exec) noexcept;

  // The executable graph was updated from the graph: put(node, plan, copy) for each of its nodes; plan 0:
  // unknown.
  template <typename Put>
  void Updated(uint64_t exec, uint64_t graph, Put put) noexcept {
    if (const uint64_t* owner = execs_.Find(exec); owner != nullptr)
      Pair(Ordered(*owner, nodes_of_exec_), CountOf(*owner), graph, put);
  }
  // The same for the child graph that `child_node` holds, updated from `child`.
  template <typename Put>
  void ChildReplaced(uint64_t exec, uint64_t child_node, uint64_t child, Put put) noexcept {
    const uint64_t* owner = execs_.Find(exec);
    if (owner == nullptr) return;
    const size_t all = Ordered(*owner, nodes_of_exec_);
    const auto keep = [&](uint64_t held_by) noexcept {
      size_t kept = 0;
      for (size_t i = 0; i < all; ++i) {
        if (nodes_.Find(nodes_of_exec_[i].node)->child_node == held_by)
          nodes_of_exec_[kept++] = nodes_of_exec_[i];
      }
      return kept;
    };
    size_t held = keep(child_node);
    // In a cloned graph it is not known which child node holds which nodes: they may be any of these.
    const bool known = held != 0;
    if (!known) held = keep(kSomeChild);
    Pair(held, known ? held : held + 1, child, put);
  }

 private:
  static constexpr uint64_t kSomeChild = UINT64_MAX;
  struct Node {
    uint64_t order;  // among the nodes of a graph; of an executable graph: that of the original
    uint64_t plan;
    uint64_t next;        // of the same owner, 0: none
    uint64_t child_node;  // handle of the outermost node that holds it, 0: none
    uint32_t copy;        // as PlanLaunchEvent::copy
  };
  struct List {
    uint64_t first;
    uint64_t last;
    uint64_t count;
  };
  struct Place {
    uint64_t order;
    uint64_t node;
  };

  size_t CountOf(uint64_t owner) noexcept;
  size_t Ordered(uint64_t owner, Place (&places)[kMaxNodes]) noexcept;
  void Forget(uint64_t owner) noexcept;
  void Append(uint64_t owner, uint64_t id) noexcept;
  void Adopt(uint64_t graph, uint64_t owner, uint64_t child_node) noexcept;

  // Gives the first `nodes` of nodes_of_exec_ the plans of the graph's nodes, if it has `expected` of them.
  template <typename Put>
  void Pair(size_t nodes, size_t expected, uint64_t graph, Put put) noexcept {
    const bool paired = Ordered(graph, nodes_of_graph_) == nodes && expected == nodes;
    for (size_t i = 0; i < nodes; ++i) {
      Node* node = nodes_.Find(nodes_of_exec_[i].node);
      const Node* from = paired ? nodes_.Find(nodes_of_graph_[i].node) : nullptr;
      node->plan = from != nullptr ? from->plan : 0;
      node->copy = from != nullptr ? from->copy : 0;
      put(nodes_of_exec_[i].node, node->plan, node->copy);
    }
  }

  FlatMap<Node> nodes_{1 << 16};
  FlatMap<List> lists_{1 << 14};      // by owner
  FlatMap<uint64_t> execs_{1 << 14};  // owner, by handle
  uint64_t last_order_ = 0;
  Place nodes_of_exec_[kMaxNodes];
  Place nodes_of_graph_[kMaxNodes];
};

}  // namespace gpuprobe::injector
