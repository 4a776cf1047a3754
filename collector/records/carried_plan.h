// A plan of collectives carried by a node of a CUDA graph: the plan, and the copy of the graph that it was
// captured into.
//
// The copy matters: a graph that was copied twice into another as a child runs its plans twice in each
// launch.
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

struct CarriedPlan {
  uint64_t plan = 0;  // 0: none, or unknown
  uint32_t copy = 0;  // as Plans.copy
  auto operator<=>(const CarriedPlan&) const = default;
  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, const CarriedPlan& carried) {
    return Hash::combine(std::move(hash), carried.plan, carried.copy);
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, plan, copy);
  }
};

}  // namespace gpuprobe::model
