#include "injector/sampling/sample_budget.h"

#include <algorithm>

namespace gpuprobe::injector {

void SampleBudget::PassUntil(uint64_t now_ns) noexcept {
  // After an hour both are full.
  const auto passed = static_cast<int64_t>(std::min(now_ns - std::min(last_ns_, now_ns), 3600 * kSecondNs));
  last_ns_ = now_ns;
  cpu_ns_ = std::min(kMostCpuNs, cpu_ns_ + passed / kCpuPart);
  samples_ns_ = std::min(kMostSamples * kSampleNs, samples_ns_ + passed);
}

}  // namespace gpuprobe::injector
