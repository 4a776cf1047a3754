#include "collector/records/graph_node_plans.h"

#include <algorithm>

namespace gpuprobe::model {

GraphNodePlans::GraphNodePlans(size_t max_nodes, size_t max_updates)
    : max_nodes_(max_nodes), max_updates_(max_updates) {}

void GraphNodePlans::Set(uint64_t node, CarriedPlan plan, uint64_t from_correlation) {
  if (plans_.size() >= max_nodes_ && !plans_.contains(node)) return;
  const auto [it, added] = plans_.try_emplace(node, plan, from_correlation);
  if (added) return;
  PlanSince newest{plan, from_correlation};
  if (from_correlation != 0) {
    // Reported late: plans for launches in between may have arrived already.
    if (from_correlation < it->second.second) std::swap(newest, it->second);
    auto& before = updated_[node];
    const auto older = [](const PlanSince& a, const PlanSince& b) { return a.second < b.second; };
    before.insert(std::upper_bound(before.begin(), before.end(), it->second, older), it->second);
    if (before.size() > max_updates_) before.pop_front();
  }
  it->second = newest;
}

bool GraphNodePlans::Carries(uint64_t node) const { return plans_.contains(node); }

CarriedPlan GraphNodePlans::PlanOf(uint64_t node, uint64_t correlation) const {
  const auto found = plans_.find(node);
  if (found == plans_.end()) return {};
  if (correlation >= found->second.second) return found->second.first;
  const auto before = updated_.find(node);
  if (before == updated_.end()) return {};
  for (auto it = before->second.rbegin(); it != before->second.rend(); ++it) {
    if (correlation >= it->second) return it->first;
  }
  return {};
}

}  // namespace gpuprobe::model
