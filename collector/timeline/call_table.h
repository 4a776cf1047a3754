// Finds the NCCL calls that a piece of device work carries: work -> launch or graph node -> plan -> calls.
//
// Calls and plans are reported when the call returns, and their work when it is done, so that a call of a
// while ago is not asked for any more: the last kMaxPlans are kept, and those that were captured into CUDA
// graphs, which run as often as the graph is launched.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "collector/model/calls/graph_node_plans.h"
#include "collector/model/records.h"

namespace gpuprobe::timeline {

class CallTable {
 public:
  static constexpr size_t kMaxPlans = size_t{1} << 18;
  static constexpr size_t kMaxCaptured = size_t{1} << 20;

  struct Call {
    model::CollectiveRecord record;
    uint64_t flow = 0;   // number of the call in this process, from 1
    bool shown = false;  // it is an event of the timeline
  };
  struct Plan {
    std::vector<Call> calls;
    bool captured = false;
    bool ran = false;  // its first work was seen
  };

  void Add(const model::CollectiveRecord& record);
  void Add(const model::PlanRecord& record);
  // nullptr: this work carries no call that is known.
  Plan* PlanOfWork(uint64_t correlation, uint64_t graph_node);
  // The call of this record; nullptr if it has no plan, or was captured and so launched nothing itself.
  Call* Find(const model::CollectiveRecord& record);

 private:
  Plan& PlanAt(uint64_t plan);
  void Forget();

  absl::flat_hash_map<uint64_t, Plan> plans_;
  std::deque<uint64_t> order_;
  absl::flat_hash_map<uint64_t, uint64_t> plan_of_launch_;  // by correlation
  std::deque<uint64_t> launches_;
  model::GraphNodePlans node_plans_;
  size_t captured_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace gpuprobe::timeline
