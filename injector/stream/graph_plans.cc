#include "injector/stream/graph_plans.h"

namespace gpuprobe::injector {

void GraphPlans::NodeMade(uint64_t owner, uint64_t node, uint64_t original) noexcept {
  if (owner == 0 || node == 0 || nodes_.Find(node) != nullptr) return;
  if (nodes_.Insert(node, {original, 0, 0}) == nullptr) return;
  List* list = lists_.Find(owner);
  if (list == nullptr) {
    if (lists_.Insert(owner, {node, node, 1}) == nullptr) nodes_.Erase(node);
    return;
  }
  nodes_.Find(list->last)->next = node;
  list->last = node;
  ++list->count;
}

void GraphPlans::Carries(uint64_t node, uint64_t plan) noexcept {
  if (Node* known = nodes_.Find(node); known != nullptr) known->plan = plan;
}

void GraphPlans::Instantiated(uint64_t exec, uint64_t owner) noexcept {
  ExecEnded(exec);
  if (lists_.Find(owner) == nullptr) return;
  if (execs_.Insert(exec, owner) == nullptr) Forget(owner);
}

void GraphPlans::ExecEnded(uint64_t exec) noexcept {
  const uint64_t* owner = execs_.Find(exec);
  if (owner == nullptr) return;
  Forget(*owner);
  execs_.Erase(exec);
}

size_t GraphPlans::CountOf(uint64_t owner) noexcept {
  const List* list = lists_.Find(owner);
  return list == nullptr ? 0 : list->count;
}

// The owner's nodes, as far as there is room, in the order in which they or their originals were made.
size_t GraphPlans::Ordered(uint64_t owner, Place (&places)[kMaxNodes]) noexcept {
  const List* list = lists_.Find(owner);
  size_t count = 0;
  for (uint64_t id = list == nullptr ? 0 : list->first; id != 0 && count < kMaxNodes;) {
    const Node& node = *nodes_.Find(id);
    const Place place{node.original != 0 ? node.original : id, id};
    size_t at = count++;
    // Nearly in order already.
    for (; at > 0 && places[at - 1].order > place.order; --at) places[at] = places[at - 1];
    places[at] = place;
    id = node.next;
  }
  return count;
}

void GraphPlans::Forget(uint64_t owner) noexcept {
  const List* list = lists_.Find(owner);
  if (list == nullptr) return;
  for (uint64_t id = list->first; id != 0;) {
    const uint64_t next = nodes_.Find(id)->next;
    nodes_.Erase(id);
    id = next;
  }
  lists_.Erase(owner);
}

}  // namespace gpuprobe::injector
