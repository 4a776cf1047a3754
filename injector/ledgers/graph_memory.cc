#include "injector/ledgers/graph_memory.h"

#include <algorithm>

namespace gpuprobe::injector {

void GraphMemory::Allocates(uint64_t graph, uint64_t address, uint64_t bytes, int32_t device) noexcept {
  Add(graph, {.address = address,
              .bytes = bytes,
              .next = 0,
              .device = device < 0 ? 0 : device,
              .releases = false,
              .released_inside = false});
}

void GraphMemory::Releases(uint64_t graph, uint64_t address) noexcept {
  const uint64_t* number = graphs_.Find(graph);
  const List* list = number == nullptr ? nullptr : lists_.Find(*number);
  // An address may have been used before in the same graph: the one that is open.
  for (uint64_t id = list == nullptr ? 0 : list->first; id != 0;) {
    Node* node = nodes_.Find(id);
    if (node->address == address && !node->releases && !node->released_inside) {
      node->released_inside = true;
      return;
    }
    id = node->next;
  }
  Add(graph,
      {.address = address, .bytes = 0, .next = 0, .device = 0, .releases = true, .released_inside = false});
}

void GraphMemory::Add(uint64_t graph, const Node& node) noexcept {
  uint64_t number = 0;
  if (const uint64_t* known = graphs_.Find(graph); known != nullptr) number = *known;
  if (number == 0) {
    number = ++last_number_;
    if (lists_.Insert(number, {0, 0, 1}) == nullptr) return;
    if (graphs_.Insert(graph, number) == nullptr) return Drop(number);
  }
  const uint64_t id = ++last_number_;
  if (nodes_.Insert(id, node) == nullptr) return;
  List& list = *lists_.Find(number);
  if (list.first == 0) {
    list.first = id;
  } else {
    nodes_.Find(list.last)->next = id;
  }
  list.last = id;
}

void GraphMemory::Moved(uint64_t graph, uint64_t child) noexcept {
  const uint64_t* number = graphs_.Find(child);
  if (number == nullptr) return;
  const uint64_t list = *number;
  graphs_.Erase(child);
  ForEachNode(list, [&](const Node& node) noexcept {
    // A node may release memory that the other graph's node allocated.
    node.releases ? Releases(graph, node.address) : Add(graph, node);
  });
  Drop(list);
}

void GraphMemory::Instantiated(uint64_t graph, uint64_t exec) noexcept {
  ExecEnded(exec, [](const Own&) noexcept {});
  const uint64_t* number = graphs_.Find(graph);
  if (number == nullptr) return;
  if (execs_.Insert(exec, {*number, false}) != nullptr) ++lists_.Find(*number)->users;
}

void GraphMemory::GraphEnded(uint64_t graph) noexcept {
  const uint64_t* number = graphs_.Find(graph);
  if (number == nullptr) return;
  const uint64_t list = *number;
  graphs_.Erase(graph);
  Drop(list);
}

void GraphMemory::Drop(uint64_t number) noexcept {
  List* list = lists_.Find(number);
  if (list == nullptr || --list->users != 0) return;
  for (uint64_t id = list->first; id != 0;) {
    const uint64_t next = nodes_.Find(id)->next;
    nodes_.Erase(id);
    id = next;
  }
  lists_.Erase(number);
}

// Bytes of the union of its allocations, without those that outlive the launch, which are counted separately.
GraphMemory::Own GraphMemory::OwnOn(uint64_t list, int32_t device) noexcept {
  Own own{.address = 0, .bytes = 0, .device = device};
  size_t count = 0;
  uint64_t lasting = 0;
  ForEachNode(list, [&](const Node& node) noexcept {
    if (node.releases || node.device % kMaxDevices != device) return;
    if (!node.released_inside) {
      lasting += node.bytes;
    } else if (own.address == 0 || node.address < own.address) {
      own.address = node.address;
    }
    if (count < kMaxIntervals) intervals_[count++] = {node.address, node.address + node.bytes};
  });
  std::sort(intervals_, intervals_ + count,
            [](const Interval& a, const Interval& b) noexcept { return a.begin < b.begin; });
  uint64_t reached = 0;
  for (size_t i = 0; i < count; ++i) {
    const Interval& interval = intervals_[i];
    if (interval.end <= reached) continue;
    own.bytes += interval.end - (interval.begin > reached ? interval.begin : reached);
    reached = interval.end;
  }
  own.bytes = own.bytes > lasting ? own.bytes - lasting : 0;
  return own;
}

GraphMemory::Asked GraphMemory::AskedBy(uint64_t exec) noexcept {
  Asked asked{.bytes = 0, .device = 0};
  const Exec* refused = execs_.Find(exec);
  if (refused == nullptr) return asked;
  const Exec copy = *refused;
  if (!copy.launched) {
    ForEachOwn(copy.list, [&](const Own& own) noexcept {
      asked.bytes += own.bytes;
      asked.device = own.device;
    });
  }
  ForEachNode(copy.list, [&](const Node& node) noexcept {
    if (node.releases || node.released_inside) return;
    asked.bytes += node.bytes;
    asked.device = node.device;
  });
  return asked;
}

}  // namespace gpuprobe::injector
