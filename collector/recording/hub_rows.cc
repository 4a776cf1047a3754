#include "collector/recording/hub_rows.h"

#include <algorithm>

#include "collector/http/background.h"
#include "collector/recording/version.h"

namespace gpuprobe::recording {

// A model keeps the last steps only, and a look may read hours of them.
void HubRows::OnBatch(const WholeJob& job, const model::ProcessModel& process) {
  rows_.Follow(job.model(), process);
}

void HubRows::OnLook(const WholeJob& job) {
  rows_.Look(job.model(), job.hosts(), job.status().hangs.empty() ? "running" : "hangs", NowNs());
  if (!job.model().processes().empty() && Clock::now() >= judge_at_) Judge(job);
}

void HubRows::Judge(const WholeJob& job) {
  const std::chrono::nanoseconds begun = http::ThreadTime();
  const http::DocumentBuilder::Order order = job.OrderDocuments(input_);
  model::JobModel so_far;
  so_far.SetStepMarker(order.marker);
  if (so_far.LoadState(order.state).ok()) {
    so_far.Finish(/*goes_on=*/true);
    rows_.Judge(analysis::BuildReport(so_far, order.input), NowNs());
  }
  const std::chrono::nanoseconds took = http::ThreadTime() - begun;
  judge_at_ = Clock::now() + std::max<Clock::duration>(kJudgeEvery, kJudgingInterval * took);
}

void HubRows::End(const WholeJob& job, const analysis::Report& report) {
  rows_.End(job.model(), job.hosts(), job.was_read_again(), report, NowNs());
}

}  // namespace gpuprobe::recording
