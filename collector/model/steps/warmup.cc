#include "collector/model/steps/warmup.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gpuprobe::model {

size_t WarmupLength(const std::deque<StepRecord>& steps) {
  constexpr size_t kLeastSteps = 3;
  if (steps.size() < kLeastSteps) return 0;
  std::vector<uint64_t> later;
  later.reserve(steps.size() - steps.size() / 2);
  for (size_t i = steps.size() / 2; i < steps.size(); ++i) later.push_back(steps[i].total_ns());
  const auto middle = later.begin() + static_cast<ptrdiff_t>(later.size() / 2);
  std::nth_element(later.begin(), middle, later.end());
  const double limit_ns = kWarmupFactor * static_cast<double>(*middle);
  size_t length = 0;
  // Ends before the later half does: half of that does not exceed its median.
  while (length < steps.size() && static_cast<double>(steps[length].total_ns()) > limit_ns) ++length;
  return length;
}

}  // namespace gpuprobe::model
