#include "collector/model/steps/steady_runs.h"

#include <algorithm>

namespace gpuprobe::model {

void SteadyRuns::Add(uint64_t start_ns, uint64_t end_ns, uint64_t length_ns) {
  // As EarlySteps.
  constexpr double kSame = 1.5;
  const auto length = static_cast<double>(length_ns);
  const auto first = static_cast<double>(run_length_ns_);
  const bool differs = length > kSame * first || kSame * length < first;
  if (starts_ns_.empty() || (differs && starts_ns_.size() < kMaxRuns)) {
    starts_ns_.push_back(start_ns);
    run_length_ns_ = length_ns;
  }
  until_ns_ = end_ns;
}

void SteadyRuns::KeepFrom(uint64_t start_ns) {
  known_ = true;
  from_ns_ = start_ns;
  if (start_ns == 0) return;
  const auto next = std::lower_bound(starts_ns_.begin(), starts_ns_.end(), start_ns);
  from_ns_ = next == starts_ns_.end() ? until_ns_ : *next;
}

void SteadyRuns::SteadyFrom(uint64_t start_ns) {
  if (starts_ns_.size() < kMaxRuns) starts_ns_.push_back(start_ns);
  until_ns_ = start_ns;
  KeepFrom(start_ns);
}

size_t SteadyRuns::RunAt(uint64_t time_ns) const {
  return static_cast<size_t>(std::lower_bound(starts_ns_.begin(), starts_ns_.end(), time_ns) -
                             starts_ns_.begin());
}

}  // namespace gpuprobe::model
