// Memory that CUDA graphs allocate: what each launch obtains, derived from the graph's allocation and release
// nodes.
//
// Unlike other allocations, no call obtains it: a node names address and size when it is made, and each
// launch of the graph allocates anew, without a callback. What is known, and reported:
// - An allocation that the graph does not release itself is live from the launch until something releases its
//   address: a call, or another graph's node.
// - Allocations that the graph releases itself share addresses as far as their lives allow it (CUDA gives a
//   later one the address of an earlier one). The union of their addresses is what the graph needs for
//   itself, and what the driver keeps for it from the first launch until the executable graph is destroyed.
// Not known: the granules that the driver rounds to, and which graphs share physical memory because they
// never run at the same time; only cuDeviceGetGraphMemAttribute knows, which we must not call. Thread: the
// draining one. Allocation: mappings, on growth. Failure: nodes that find no place are not reported.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/base/flat_map.h"

namespace gpuprobe::injector {

class GraphMemory {
 public:
  static constexpr int32_t kMaxDevices = 64;
  // Adds nodes of a graph, in the order in which they were made.
  void Allocates(uint64_t graph, uint64_t address, uint64_t bytes, int32_t device) noexcept;
  void Releases(uint64_t graph, uint64_t address) noexcept;
  // The child graph was moved into the graph, which has its nodes from now on.
  void Moved(uint64_t graph, uint64_t child) noexcept;
  void Instantiated(uint64_t graph, uint64_t exec) noexcept;
  void GraphEnded(uint64_t graph) noexcept;

  // An executable graph's own needs on one device.
  struct Own {
    uint64_t address;  // the lowest
    uint64_t bytes;    // that it needs for what it releases itself
    int32_t device;
  };

  // A launch: own(Own) at the first one, then allocated(address, bytes, device) and released(address).
  template <typename OnOwn, typename OnAllocated, typename OnReleased>
  void Launched(uint64_t exec, OnOwn own, OnAllocated allocated, OnReleased released) noexcept {
    Exec* launched = execs_.Find(exec);
    if (launched == nullptr) return;
    if (!launched->launched) ForEachOwn(launched->list, own);
    launched->launched = true;
    ForEachNode(launched->list, [&](const Node& node) noexcept {
      if (node.releases) {
        released(node.address);
      } else if (!node.released_inside) {
        allocated(node.address, node.bytes, node.device);
      }
    });
  }

  // The memory that a refused launch asked for.
  struct Asked {
    uint64_t bytes;
    int32_t device;
  };
  Asked AskedBy(uint64_t exec) noexcept;

  // The executable graph is destroyed: own(Own) again, if it was launched.
  template <typename OnOwn>
  void ExecEnded(uint64_t exec, OnOwn own) noexcept {
    const Exec* ended = execs_.Find(exec);
    if (ended == nullptr) return;
    const Exec copy = *ended;
    execs_.Erase(exec);
    if (copy.launched) ForEachOwn(copy.list, own);
    Drop(copy.list);
  }

 private:
  struct Node {
    uint64_t address;
    uint64_t bytes;
    uint64_t next;  // 0: none
    int32_t device;
    bool releases;         // what another graph, or a call, allocated
    bool released_inside;  // by the same graph
  };
  // The nodes of a graph; kept as long as the graph or anything instantiated from it.
  struct List {
    uint64_t first;
    uint64_t last;
    uint32_t users;
  };
  struct Exec {
    uint64_t list;
    bool launched;
  };

  template <typename Visit>
  void ForEachNode(uint64_t number, Visit visit) noexcept {
    const List* list = lists_.Find(number);
    for (uint64_t id = list == nullptr ? 0 : list->first; id != 0;) {
      const Node node = *nodes_.Find(id);
      visit(node);
      id = node.next;
    }
  }
  template <typename OnOwn>
  void ForEachOwn(uint64_t list, OnOwn own) noexcept {
    uint64_t devices = 0;
    ForEachNode(list, [&](const Node& node) noexcept {
      if (node.released_inside) devices |= uint64_t{1} << (node.device % kMaxDevices);
    });
    for (int32_t device = 0; devices != 0; ++device, devices >>= 1) {
      if ((devices & 1) == 0) continue;
      const Own needs = OwnOn(list, device);
      if (needs.bytes != 0) own(needs);
    }
  }
  Own OwnOn(uint64_t list, int32_t device) noexcept;
  void Add(uint64_t graph, const Node& node) noexcept;
  void Drop(uint64_t list) noexcept;

  FlatMap<Node> nodes_{1 << 16};       // by a number
  FlatMap<List> lists_{1 << 14};       // by a number
  FlatMap<uint64_t> graphs_{1 << 14};  // list, by handle
  FlatMap<Exec> execs_{1 << 14};       // by handle
  uint64_t last_number_ = 0;

  struct Interval {
    uint64_t begin;
    uint64_t end;
  };
  static constexpr size_t kMaxIntervals = 4096;  // allocations of one graph that are looked at
  Interval intervals_[kMaxIntervals];
};

}  // namespace gpuprobe::injector
