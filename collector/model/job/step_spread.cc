#include "collector/model/job/step_spread.h"

#include <algorithm>

namespace gpuprobe::model {

void StepSpread::Add(uint64_t step, uint64_t comm_ns, uint64_t exposed_comm_ns) {
  if (step < closed_before_) return;
  Step& open = open_[step];
  ++open.ranks;
  open.exposed_ns += exposed_comm_ns;
  open.least_exposed_ns = std::min(open.least_exposed_ns, exposed_comm_ns);
  open.least_comm_ns = std::min(open.least_comm_ns, comm_ns);
  most_ranks_ = std::max(most_ranks_, open.ranks);
  if (open_.size() <= kMaxOpen) return;
  Close(open_.begin()->second, sums_);
  closed_before_ = open_.begin()->first + 1;
  open_.erase(open_.begin());
}

void StepSpread::Close(const Step& step, Sums& sums) const {
  if (step.ranks < 2 || step.ranks < kLeastRanks * most_ranks_) return;
  ++sums.steps;
  sums.exposed_ns += step.exposed_ns / step.ranks;
  sums.least_exposed_ns += step.least_exposed_ns;
  sums.least_comm_ns += step.least_comm_ns;
}

StepSpread::Means StepSpread::Summarize() const {
  Sums sums = sums_;
  for (const auto& [index, step] : open_) Close(step, sums);
  if (sums.steps == 0) return {};
  const auto steps = static_cast<double>(sums.steps);
  return {.steps = sums.steps,
          .exposed_ns = static_cast<double>(sums.exposed_ns) / steps,
          .least_exposed_ns = static_cast<double>(sums.least_exposed_ns) / steps,
          .least_comm_ns = static_cast<double>(sums.least_comm_ns) / steps};
}

}  // namespace gpuprobe::model
