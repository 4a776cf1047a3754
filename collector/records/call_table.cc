#include "collector/records/call_table.h"

#include <algorithm>

namespace gpuprobe::model {

void WorkPlans::Add(const PlanRecord& record, bool stays) {
  if (record.graph_node != 0)
    return nodes_.Set(record.graph_node, {record.plan, record.copy}, record.from_correlation);
  if (record.plan == 0 || record.correlation == 0) return;
  if (!plan_of_launch_.insert_or_assign(record.correlation, record.plan).second || stays) return;
  launches_.push_back(record.correlation);
  if (launches_.size() <= max_launches_) return;
  plan_of_launch_.erase(launches_.front());
  launches_.pop_front();
}

CarriedPlan WorkPlans::Of(uint64_t correlation, uint64_t graph_node) const {
  if (graph_node != 0) return nodes_.PlanOf(graph_node, correlation);
  const auto launch = plan_of_launch_.find(correlation);
  return {.plan = launch == plan_of_launch_.end() ? 0 : launch->second, .copy = 0};
}

CallTable::Plan& CallTable::PlanAt(uint64_t plan) {
  const auto [it, added] = plans_.try_emplace(plan);
  if (added) order_.push_back(plan);
  return it->second;
}

void CallTable::Keep(Plan& plan) {
  if (plan.stays || kept_ >= kMaxCaptured) return;
  plan.stays = true;
  ++kept_;
}

void CallTable::Add(const CollectiveRecord& record, bool stays) {
  ++calls_;
  if (record.plan == 0) return;
  Plan& plan = PlanAt(record.plan);
  plan.calls.push_back({.record = record, .flow = calls_, .shown = false});
  if (stays) Keep(plan);
  // A plan that stays gives up its place in the order.
  while (order_.size() > max_plans_) {
    const auto oldest = plans_.find(order_.front());
    order_.pop_front();
    if (oldest != plans_.end() && !oldest->second.stays) plans_.erase(oldest);
  }
}

void CallTable::Add(const PlanRecord& record) {
  if (record.graph_node != 0 && record.plan != 0) {
    Plan& plan = PlanAt(record.plan);
    Keep(plan);
    plan.captured = plan.stays;
  }
  const Plan* plan = FindPlan(record.plan);
  work_.Add(record, plan != nullptr && plan->stays);
}

CallTable::Plan* CallTable::FindPlan(uint64_t plan) {
  const auto found = plans_.find(plan);
  return found == plans_.end() || found->second.calls.empty() ? nullptr : &found->second;
}

CallTable::Plan* CallTable::PlanOfWork(uint64_t correlation, uint64_t graph_node) {
  const uint64_t plan = work_.Of(correlation, graph_node).plan;
  return plan == 0 ? nullptr : FindPlan(plan);
}

CallTable::Kernel CallTable::Resolve(const KernelRecord& kernel, KernelNature named, bool names_are_uncertain,
                                     uint32_t owner) {
  // Where a graph was updated, the mapping from nodes to calls is only approximate: the name decides, if it
  // can be trusted.
  const bool by_name = kernel.graph_node != 0 && named != KernelNature::kNccl && !names_are_uncertain;
  const uint64_t plan = by_name ? 0 : work_.Of(kernel.correlation, kernel.graph_node).plan;
  return {.nature = NatureOf({.named = named, .plan = plan, .owner = owner}),
          .plan = plan == 0 ? nullptr : FindPlan(plan)};
}

CallTable::Call* CallTable::Find(const CollectiveRecord& record) {
  Plan* plan = record.plan == 0 ? nullptr : FindPlan(record.plan);
  if (plan == nullptr || plan->captured) return nullptr;
  const auto call = std::find_if(plan->calls.begin(), plan->calls.end(), [&](const Call& c) {
    return c.record.comm == record.comm && c.record.seq == record.seq && c.record.issue_ns == record.issue_ns;
  });
  return call == plan->calls.end() ? nullptr : &*call;
}

}  // namespace gpuprobe::model
