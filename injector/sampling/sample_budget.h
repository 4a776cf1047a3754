// Holds sampling to its promise: in any second at most 1 % of a core, and at most 100 samples.
//
// Both are credits that grow with time up to a small cap. Example: reading a deep stack for the first time
// took 4 ms, so that the credit is 2 ms below zero: the next sample comes a quarter of a second later.
// Thread: the probe's own. Allocation: none. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuprobe::injector {

class SampleBudget {
 public:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  static constexpr int64_t kCpuPart = 140;  // of the time that passes: 0.7 %
  static constexpr int64_t kMostCpuNs = 2'000'000;
  static constexpr int64_t kSampleNs = kSecondNs / 90;
  static constexpr int64_t kMostSamples = 4;
  static constexpr int64_t kMostOfALook = 7;  // samples
  static constexpr int64_t kLooksOfMean = 32;
  static constexpr int64_t kMostOfALookNs = 1'000'000;  // of those that search for an interpreter

  // The time by a clock that nobody sets.
  void PassUntil(uint64_t now_ns) noexcept;
  bool Allows() const noexcept { return cpu_ns_ > 0 && samples_ns_ >= kSampleNs; }
  // Until it allows a look.
  uint64_t RestNs() const noexcept {
    const int64_t cpu_rest_ns = cpu_ns_ > 0 ? 0 : (1 - cpu_ns_) * kCpuPart;
    return static_cast<uint64_t>(std::max({int64_t{0}, cpu_rest_ns, kSampleNs - samples_ns_}));
  }
  // Between looks, if they cost on average what the last ones cost: at this pace the credit lasts.
  uint64_t PaceNs() const noexcept { return static_cast<uint64_t>(mean_cpu_ns_ * kCpuPart); }
  // At most kMostOfALook times in a look that was allowed. It is not cut short: a thread would be blamed only
  // because it was looked at first.
  void TakeSample() noexcept { samples_ns_ -= kSampleNs; }
  // What one look cost.
  void TakeCpu(uint64_t ns) noexcept {
    cpu_ns_ -= static_cast<int64_t>(ns);
    mean_cpu_ns_ += (std::min(static_cast<int64_t>(ns), kMostOfALookNs) - mean_cpu_ns_) / kLooksOfMean;
  }

 private:
  uint64_t last_ns_ = 0;
  int64_t cpu_ns_ = kMostCpuNs;
  int64_t samples_ns_ = kMostSamples * kSampleNs;
  int64_t mean_cpu_ns_ = 0;
};

}  // namespace gpuprobe::injector
