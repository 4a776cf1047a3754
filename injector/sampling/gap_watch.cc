#include "injector/sampling/gap_watch.h"

#include <algorithm>

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kUsualRestNs = 10 * GapWatch::kMsNs;
constexpr uint64_t kIdleRestNs = 1000 * GapWatch::kMsNs;
constexpr uint64_t kGivenUpRestNs = 100 * GapWatch::kMsNs;  // a first launch is soon noticed

}  // namespace

bool GapWatch::Look(uint64_t now_ns, uint64_t launched_ns, Sample* sample) noexcept {
  launched_ns = std::min(launched_ns, now_ns);  // the clock may have been set back
  silent_ns_ = launched_ns == 0 ? kGivenUpNs : now_ns - launched_ns;
  if (silent_ns_ >= kGivenUpNs) {
    sampled_ns_ = now_ns;
    return false;
  }
  sample->in_gap = silent_ns_ >= kGapNs;
  looks_ = sample->in_gap ? 0 : looks_ + 1;
  if (!sample->in_gap && looks_ < kLooksOfALaunchingProcess) return false;
  looks_ = 0;
  const uint64_t earliest_ns = now_ns - std::min(now_ns, kMostStoodForNs);
  sample->since_ns = std::max(earliest_ns, std::min(sampled_ns_, now_ns));
  if (sample->in_gap) sample->since_ns = std::max(sample->since_ns, launched_ns);
  sampled_ns_ = now_ns;
  return true;
}

uint64_t GapWatch::RestNs(uint64_t pace_ns) noexcept {
  if (silent_ns_ >= kGivenUpNs) return kGivenUpRestNs;
  if (silent_ns_ >= kIdleNs) return kIdleRestNs;
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const uint64_t usual_ns = std::max(pace_ns, kUsualRestNs);
  return usual_ns / 2 + random_ % (usual_ns + 1);
}

}  // namespace gpuprobe::injector
