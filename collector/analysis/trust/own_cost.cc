#include "collector/analysis/trust/own_cost.h"

#include <algorithm>

#include "collector/analysis/names.h"
#include "collector/model/job/job_model.h"
#include "proto/cupti_cost.h"

namespace gpuprobe::analysis {

namespace {

bool IsCuptis(v1::OverheadKind what) {
  return what == v1::OVERHEAD_KIND_BUFFER_FLUSH || what == v1::OVERHEAD_KIND_INSTRUMENTATION ||
         what == v1::OVERHEAD_KIND_RESOURCE || what == v1::OVERHEAD_KIND_BUFFER_REQUEST ||
         what == v1::OVERHEAD_KIND_MANAGED_MEMORY;
}

void AddOverheads(const model::JobModel& job, std::span<const uint64_t> durations_ns, OwnCost& cost) {
  uint64_t cuptis_ns = 0;
  uint64_t life_ns = 0;
  for (const uint64_t duration_ns : durations_ns) life_ns += duration_ns;
  for (int i = 0; i < v1::OverheadKind_ARRAYSIZE; ++i) {
    const auto kind = static_cast<v1::OverheadKind>(i);
    OwnCost::Overhead sum{.what = EnumWord(kind)};
    for (const auto& process : job.processes()) {
      const model::OverheadTotals& totals = process->totals().overheads[static_cast<size_t>(i)];
      sum.count += totals.count;
      sum.duration_ns += totals.duration_ns;
    }
    if (sum.count == 0) continue;
    if (IsCuptis(kind)) cuptis_ns += sum.duration_ns;
    cost.overheads.push_back(sum);
  }
  std::stable_sort(cost.overheads.begin(), cost.overheads.end(),
                   [](const auto& a, const auto& b) { return a.duration_ns > b.duration_ns; });
  if (!cost.overheads.empty() && life_ns > 0)
    cost.cupti_overhead_fraction = static_cast<double>(cuptis_ns) / static_cast<double>(life_ns);
}

}  // namespace

OwnCost OwnCostOf(const model::JobModel& job, std::span<const uint64_t> durations_ns) {
  OwnCost cost;
  AddOverheads(job, durations_ns, cost);
  uint64_t own_ns = 0;
  uint64_t own_of_ns = 0;
  uint64_t launch_ns = 0;
  uint64_t launch_of_ns = 0;
  for (size_t i = 0; i < job.processes().size(); ++i) {
    const v1::SelfReport& self = job.processes()[i]->totals().self;
    const uint64_t life_ns = durations_ns[i];
    if (self.memory_peak_bytes() > cost.memory_peak_bytes) {
      cost.memory_peak_bytes = self.memory_peak_bytes();
      cost.memory_limit_bytes = self.memory_limit_bytes();
    }
    if (self.host_sampling() == 0) continue;
    cost.graph_nodes += job.processes()[i]->totals().graph_kernels;
    own_ns += self.host_ns();
    own_of_ns += life_ns;
    cost.own_sampling = std::max(cost.own_sampling, self.host_sampling());
    const v1::LaunchCost& launches = self.launch_cost();
    if (launches.launches() == 0) continue;
    launch_ns += launches.launch_ns();
    launch_of_ns += life_ns;
    cost.launches += launches.launches();
  }
  const auto fraction = [](double part, uint64_t whole) { return part / static_cast<double>(whole); };
  if (launch_of_ns > 0) cost.launch_fraction = fraction(static_cast<double>(launch_ns), launch_of_ns);
  if (own_of_ns == 0) return cost;
  cost.own_fraction = fraction(static_cast<double>(own_ns), own_of_ns);
  const auto launches = static_cast<double>(cost.launches);
  const auto graph_nodes = static_cast<double>(cost.graph_nodes);
  cost.graph_nodes_least = fraction(graph_nodes * cupti::kGraphNodeLeastNs, own_of_ns);
  cost.graph_nodes_most = fraction(graph_nodes * cupti::kGraphNodeMostNs, own_of_ns);
  cost.expected_least = fraction(launches * cupti::kLaunchLeastNs, own_of_ns) + cost.graph_nodes_least;
  cost.expected_most = fraction(launches * cupti::kLaunchMostNs, own_of_ns) + cost.graph_nodes_most;
  return cost;
}

}  // namespace gpuprobe::analysis
