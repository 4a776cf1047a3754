// Which nodes of CUDA graphs carry which plan of collectives, and since which launch.
//
// A node keeps its id when its executable graph is updated, and carries another plan in later launches, so a
// kernel's plan depends on the launch that it ran in. Memory: the last kMaxUpdates plans of a node; kernels
// are reported long before as many updates have followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"
#include "collector/records/bounds.h"
#include "collector/records/carried_plan.h"

namespace gpuprobe::model {

class GraphNodePlans {
 public:
  static constexpr size_t kMaxUpdates = 256;  // of a node, kept

  explicit GraphNodePlans(size_t max_nodes = kMaxCaptured, size_t max_updates = kMaxUpdates);

  // The node carries the plan (0: unknown) in launches with this correlation id or a later one.
  void Set(uint64_t node, CarriedPlan plan, uint64_t from_correlation);
  // In any launch.
  bool Carries(uint64_t node) const;
  // Plan 0: none is known.
  CarriedPlan PlanOf(uint64_t node, uint64_t correlation) const;

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
