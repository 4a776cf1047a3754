#include "collector/timeline/call_table.h"

#include <algorithm>

namespace gpuprobe::timeline {

CallTable::Plan& CallTable::PlanAt(uint64_t plan) {
  const auto [it, added] = plans_.try_emplace(plan);
  if (added) order_.push_back(plan);
  return it->second;
}

void CallTable::Add(const model::CollectiveRecord& record) {
  ++calls_;
  if (record.plan == 0) return;
  PlanAt(record.plan).calls.push_back({.record = record, .flow = calls_, .shown = false});
  Forget();
}

void CallTable::Add(const model::PlanRecord& record) {
  if (record.graph_node != 0) {
    node_plans_.Set(record.graph_node, {record.plan, record.copy}, record.from_correlation);
    if (record.plan == 0) return;
    Plan& plan = PlanAt(record.plan);
    if (!plan.captured && captured_ < kMaxCaptured) {
      plan.captured = true;
      ++captured_;
    }
    return;
  }
  if (record.plan == 0 || record.correlation == 0) return;
  if (plan_of_launch_.insert_or_assign(record.correlation, record.plan).second)
    launches_.push_back(record.correlation);
  if (launches_.size() <= kMaxPlans) return;
  plan_of_launch_.erase(launches_.front());
  launches_.pop_front();
}

void CallTable::Forget() {
  // A plan that was captured stays, and gives up its place in the order.
  while (order_.size() > kMaxPlans) {
    const auto oldest = plans_.find(order_.front());
    order_.pop_front();
    if (oldest != plans_.end() && !oldest->second.captured) plans_.erase(oldest);
  }
}

CallTable::Plan* CallTable::PlanOfWork(uint64_t correlation, uint64_t graph_node) {
  uint64_t plan = 0;
  if (graph_node != 0) {
    plan = node_plans_.PlanOf(graph_node, correlation).plan;
  } else if (const auto launch = plan_of_launch_.find(correlation); launch != plan_of_launch_.end()) {
    plan = launch->second;
  }
  if (plan == 0) return nullptr;
  const auto found = plans_.find(plan);
  return found == plans_.end() || found->second.calls.empty() ? nullptr : &found->second;
}

CallTable::Call* CallTable::Find(const model::CollectiveRecord& record) {
  const auto plan = plans_.find(record.plan);
  if (record.plan == 0 || plan == plans_.end() || plan->second.captured) return nullptr;
  const auto call = std::find_if(plan->second.calls.begin(), plan->second.calls.end(), [&](const Call& c) {
    return c.record.comm == record.comm && c.record.seq == record.seq && c.record.issue_ns == record.issue_ns;
  });
  return call == plan->second.calls.end() ? nullptr : &*call;
}

}  // namespace gpuprobe::timeline
