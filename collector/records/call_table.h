// Finds the NCCL calls that a piece of device work carries: work -> launch or graph node -> plan -> calls.
//
// Calls and plans are reported when the call returns, and their work when it is done, so that old calls are
// not looked up any more: the last kMaxPlans are kept, and those that were captured into CUDA graphs, which
// run as often as the graph is launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/records/bounds.h"
#include "collector/records/collective_kernels.h"
#include "collector/records/graph_node_plans.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// Which plan a piece of work carries.
class WorkPlans {
 public:
  explicit WorkPlans(size_t max_launches = kMaxPlans, GraphNodePlans nodes = GraphNodePlans())
      : max_launches_(max_launches), nodes_(std::move(nodes)) {}

  // `stays`: its launch does not make room for later ones.
  void Add(const PlanRecord& record, bool stays = false);
  // Plan 0: none is known.
  CarriedPlan Of(uint64_t correlation, uint64_t graph_node) const;
  // Whether the node carries a plan in any launch.
  bool Carries(uint64_t graph_node) const { return nodes_.Carries(graph_node); }

 private:
  size_t max_launches_;
  absl::flat_hash_map<uint64_t, uint64_t> plan_of_launch_;  // by correlation
  std::deque<uint64_t> launches_;
  GraphNodePlans nodes_;
};

class CallTable {
 public:
  struct Call {
    CollectiveRecord record;
    uint64_t flow = 0;   // number of the call in this process, from 1
    bool shown = false;  // it is an event of the timeline
  };
  struct Plan {
    std::vector<Call> calls;
    bool captured = false;
    bool stays = false;  // captured, or asked for
    bool ran = false;    // its first work was seen
  };

  explicit CallTable(size_t max_plans = kMaxPlans) : max_plans_(max_plans), work_(max_plans) {}

  // A batch's calls before its plans. `stays`: the call does not make room for later ones.
  void Add(const CollectiveRecord& record, bool stays = false);
  void Add(const PlanRecord& record);
  // nullptr: this work carries no call that is known.
  Plan* PlanOfWork(uint64_t correlation, uint64_t graph_node);
  // What a kernel is, and the calls that it carries. `owner`: its launch's.
  struct Kernel {
    KernelNature nature = KernelNature::kCompute;
    Plan* plan = nullptr;
  };
  Kernel Resolve(const KernelRecord& kernel, KernelNature named, bool names_are_uncertain, uint32_t owner);
  // The call of this record; nullptr if it has no plan, or was captured and so launched nothing itself.
  Call* Find(const CollectiveRecord& record);

 private:
  Plan& PlanAt(uint64_t plan);
  void Keep(Plan& plan);
  Plan* FindPlan(uint64_t plan);

  size_t max_plans_;
  absl::flat_hash_map<uint64_t, Plan> plans_;
  std::deque<uint64_t> order_;
  WorkPlans work_;
  size_t kept_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace gpuprobe::model
