#include "injector/ledgers/graph_plans.h"

namespace gpuprobe::injector {

void GraphPlans::NodeMade(uint64_t owner, uint64_t node, uint64_t original) noexcept {
  if (owner == 0 || node == 0 || nodes_.Find(node) != nullptr) return;
  const Node* from = nodes_.Find(original);
  const Node made{.order = from != nullptr ? from->order : ++last_order_,
                  .plan = 0,
                  .next = 0,
                  .child_node = from != nullptr ? from->child_node : 0,
                  .copy = 0};
  if (nodes_.Insert(node, made) != nullptr) Append(owner, node);
}

void GraphPlans::Append(uint64_t owner, uint64_t id) noexcept {
  List* list = lists_.Find(owner);
  if (list == nullptr) {
    if (lists_.Insert(owner, {id, id, 1}) == nullptr) nodes_.Erase(id);
    return;
  }
  nodes_.Find(list->last)->next = id;
  list->last = id;
  ++list->count;
}

// The graph's nodes are in the order in which they, or what holds them, were added to it.
void GraphPlans::Adopt(uint64_t graph, uint64_t owner, uint64_t child_node) noexcept {
  const bool all = CountOf(owner) <= kMaxNodes;
  const size_t nodes = Ordered(owner, nodes_of_graph_);
  if (!all) Forget(owner);
  lists_.Erase(owner);
  for (size_t i = 0; all && i < nodes; ++i) {
    Node& node = *nodes_.Find(nodes_of_graph_[i].node);
    node.order = ++last_order_;
    node.next = 0;
    if (child_node != kSomeChild || node.child_node != 0) node.child_node = child_node;
    Append(graph, nodes_of_graph_[i].node);
  }
}

void GraphPlans::Carries(uint64_t node, uint64_t plan, uint32_t copy) noexcept {
  Node* known = nodes_.Find(node);
  if (known == nullptr) return;
  known->plan = plan;
  known->copy = copy;
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

// The owner's nodes, as far as there is room, in their order.
size_t GraphPlans::Ordered(uint64_t owner, Place (&places)[kMaxNodes]) noexcept {
  const List* list = lists_.Find(owner);
  size_t count = 0;
  for (uint64_t id = list == nullptr ? 0 : list->first; id != 0 && count < kMaxNodes;) {
    const Node& node = *nodes_.Find(id);
    const Place place{node.order, id};
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
