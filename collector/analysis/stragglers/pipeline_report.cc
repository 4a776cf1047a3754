#include "collector/analysis/stragglers/pipeline_report.h"

#include <algorithm>
#include <cmath>

#include "collector/analysis/communication/call_timing.h"
#include "collector/analysis/stragglers/straggler_report.h"
#include "collector/report/steps.h"

namespace gpuprobe::analysis {

std::optional<Pipeline> PipelineOf(const model::JobModel& job, const Exchanges& exchanges) {
  Pipeline p;
  double least = 0;
  double step_ns = 0;
  double busy_ns = 0;
  size_t ranks = 0;
  for (const model::Member& member : job.ReportedMembers()) {
    const model::ProcessModel& process = *member.process;
    const StepMeans steps = StepMeansOf(member);
    const double sends = SendsPerStep(member, exchanges);
    if (sends == 0 || steps.steps == 0) continue;
    member.ForEachSeries([&](const model::CollectiveSeries& series) {
      const v1::Communicator* comm = process.FindCommunicator(series.comm);
      const bool stage = exchanges.Of(process, series) == TransferPattern::kPipeline;
      if (comm != nullptr && stage) p.stages = std::max(p.stages, comm->ranks());
    });
    const CollectiveTime own = CollectiveTimeOf(member, exchanges);
    const bool first = ranks++ == 0;
    least = first ? sends : std::min(least, sends);
    p.collective_ns = first ? own.transfer_ns_per_step : std::min(p.collective_ns, own.transfer_ns_per_step);
    p.exposed_collective_ns = first ? own.exposed_transfer_ns_per_step
                                    : std::min(p.exposed_collective_ns, own.exposed_transfer_ns_per_step);
    step_ns += steps.total_ns;
    // A GPU that its own host leaves idle does not wait for other stages.
    busy_ns += steps.compute_ns + own.exposed_ns_per_step + steps.host_ns() + steps.input_ns;
  }
  if (ranks < 2 || p.stages < 2 || least < 1 || step_ns <= 0) return std::nullopt;
  p.microbatches = static_cast<int>(std::lround(least));
  p.bubble = std::max(1 - busy_ns / step_ns, 0.0);
  p.least_bubble = static_cast<double>(p.stages - 1) / (p.microbatches + p.stages - 1);
  return p;
}

}  // namespace gpuprobe::analysis
