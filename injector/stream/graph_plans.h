// Which nodes of which CUDA graph carry which plan of NCCL calls, for the case that an executable graph is
// updated from another graph: its nodes keep their ids and carry the other graph's calls from then on.
//
// Separate from nccl/captured_nodes.h, which application threads ask while nodes are made: here nothing
// hurries and nodes are known by their graph. CUDA pairs the nodes of the two graphs by the order in which
// they were made; so does this class, with those that carry calls. Where their number differs, nothing is
// known of what the nodes carry any more, and their kernels are known by name. Thread: whoever drains.
// Allocation: mappings, on growth. Failure: what does not fit is not updated: its plan becomes unknown.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/stream/flat_map.h"

namespace gpuprobe::injector {

class GraphPlans {
 public:
  static constexpr size_t kMaxNodes = 4096;  // of one graph, that carry calls

  // `owner`: a graph's handle, or the instantiation that copied the node. `original`: the node that it was
  // copied from, 0 if none.
  void NodeMade(uint64_t owner, uint64_t node, uint64_t original) noexcept;
  void Carries(uint64_t node, uint64_t plan) noexcept;
  void Instantiated(uint64_t exec, uint64_t owner) noexcept;
  void GraphEnded(uint64_t graph) noexcept { Forget(graph); }
  void ExecEnded(uint64_t exec) noexcept;

  // The executable graph was updated from the graph: put(node, plan) for each of its nodes; plan 0: unknown.
  template <typename Put>
  void Updated(uint64_t exec, uint64_t graph, Put put) noexcept {
    const uint64_t* owner = execs_.Find(exec);
    if (owner == nullptr) return;
    const size_t nodes = Ordered(*owner, nodes_of_exec_);
    const bool paired = Ordered(graph, nodes_of_graph_) == nodes && CountOf(*owner) == nodes;
    for (size_t i = 0; i < nodes; ++i) {
      Node* node = nodes_.Find(nodes_of_exec_[i].node);
      const Node* from = paired ? nodes_.Find(nodes_of_graph_[i].node) : nullptr;
      node->plan = from != nullptr ? from->plan : 0;
      put(nodes_of_exec_[i].node, node->plan);
    }
  }

 private:
  struct Node {
    uint64_t original;
    uint64_t plan;
    uint64_t next;  // of the same owner, 0: none
  };
  struct List {
    uint64_t first;
    uint64_t last;
    uint64_t count;
  };
  struct Place {
    uint64_t order;  // id of the node in the graph that was captured: ids ascend
    uint64_t node;
  };

  size_t CountOf(uint64_t owner) noexcept;
  size_t Ordered(uint64_t owner, Place (&places)[kMaxNodes]) noexcept;
  void Forget(uint64_t owner) noexcept;

  FlatMap<Node> nodes_{1 << 16};
  FlatMap<List> lists_{1 << 14};      // by owner
  FlatMap<uint64_t> execs_{1 << 14};  // owner, by handle
  Place nodes_of_exec_[kMaxNodes];
  Place nodes_of_graph_[kMaxNodes];
};

}  // namespace gpuprobe::injector
