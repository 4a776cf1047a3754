#include "collector/analysis/pipeline_report.h"

#include <algorithm>
#include <cmath>

#include "collector/analysis/call_timing.h"
#include "collector/analysis/report/steps.h"
#include "collector/analysis/straggler_report.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {

std::optional<Pipeline> PipelineOf(const model::JobModel& job) {
  const std::vector<CollectiveTime> collectives = CollectiveTimesOf(job);
  Pipeline p;
  double least = 0;
  double step_ns = 0;
  double busy_ns = 0;
  size_t ranks = 0;
  for (size_t i = 0; i < job.processes().size(); ++i) {
    const model::ProcessModel& process = *job.processes()[i];
    const StepMeans steps = StepMeansOf(process);
    const double sends = SendsPerStep(process);
    if (sends == 0 || steps.steps == 0) continue;
    for (const auto& series : process.collectives().series()) {
      const v1::Communicator* comm = process.FindCommunicator(series->comm);
      const bool transfers = std::any_of(series->parts.begin(), series->parts.end(), [&](const auto& part) {
        return nccl::IsSend(process.String(part.op));
      });
      if (comm != nullptr && transfers) p.stages = std::max(p.stages, comm->ranks());
    }
    const CollectiveTime& own = collectives[i];
    const bool first = ranks++ == 0;
    least = first ? sends : std::min(least, sends);
    p.collective_ns = first ? own.time_ns_per_step : std::min(p.collective_ns, own.time_ns_per_step);
    p.exposed_collective_ns =
        first ? own.exposed_ns_per_step : std::min(p.exposed_collective_ns, own.exposed_ns_per_step);
    step_ns += steps.total_ns;
    busy_ns += steps.compute_ns + own.exposed_ns_per_step;
  }
  if (ranks < 2 || p.stages < 2 || least < 1 || step_ns <= 0) return std::nullopt;
  p.microbatches = static_cast<int>(std::lround(least));
  p.bubble = std::max(1 - busy_ns / step_ns, 0.0);
  p.least_bubble = static_cast<double>(p.stages - 1) / (p.microbatches + p.stages - 1);
  return p;
}

}  // namespace gpuprobe::analysis
