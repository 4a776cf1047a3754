// Which nodes of CUDA graphs carry which plan of collectives, and since which launch.
//
// Separate because the live model and the exported records both need it. A node keeps its id when its
// executable graph is updated, and carries another plan in later launches, so a kernel's plan depends on the
// launch that it ran in. Memory: the last kMaxUpdates plans of a node; kernels are reported long before as
// many updates have followed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "collector/model/calls/carried_plan.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class GraphNodePlans {
 public:
  static constexpr size_t kMaxUpdates = 256;  // of a node, kept

  // Nodes that carry collectives: a program with a thousand graphs of a thousand layers.
  explicit GraphNodePlans(size_t max_nodes = size_t{1} << 20, size_t max_updates = kMaxUpdates)
      : max_nodes_(max_nodes), max_updates_(max_updates) {}

  // The node carries the plan (0: one that nobody knows) in launches with this correlation id or a later one.
  void Set(uint64_t node, CarriedPlan plan, uint64_t from_correlation) {
    if (plans_.size() >= max_nodes_ && !plans_.contains(node)) return;
    const auto [it, added] = plans_.try_emplace(node, plan, from_correlation);
    if (added) return;
    PlanSince newest{plan, from_correlation};
    if (from_correlation != 0) {
      // Told late: launches in between may have been told before.
      if (from_correlation < it->second.second) std::swap(newest, it->second);
      auto& before = updated_[node];
      const auto older = [](const PlanSince& a, const PlanSince& b) { return a.second < b.second; };
      before.insert(std::upper_bound(before.begin(), before.end(), it->second, older), it->second);
      if (before.size() > max_updates_) before.pop_front();
    }
    it->second = newest;
  }

  // In any launch.
  bool Carries(uint64_t node) const { return plans_.contains(node); }
  // Plan 0: none is known.
  CarriedPlan PlanOf(uint64_t node, uint64_t correlation) const {
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

 private:
  using PlanSince = std::pair<CarriedPlan, uint64_t>;  // correlation
  size_t max_nodes_;
  size_t max_updates_;
  absl::flat_hash_map<uint64_t, PlanSince> plans_;
  absl::flat_hash_map<uint64_t, std::deque<PlanSince>> updated_;  // what they carried before, oldest first

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    // Rebuilt: the owner's.
    archive.Members(this, Rebuilt(max_nodes_, max_updates_), plans_, updated_);
  }
};

}  // namespace gpuprobe::model
