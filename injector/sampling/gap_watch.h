// Decides when the threads of the process are worth a sample, by when the process launched last.
//
// Looks come every 10 ms on average, or as seldom as all of them can be paid for, with a jitter. When the
// next one comes depends on nothing that this one saw: a rest that follows a costly sample would end at the
// same place of the next step, and some places would never be seen. If the process has launched nothing for 1
// ms, it is in a gap, and each look is a sample; otherwise one look in four is. Example: launches end at 0
// ms, looks come at 4, 13 and 25 ms, and launches go on at 30 ms. The three samples stand for 4, 9 and 12 ms
// of the gap; what follows the last one is in none.
//
// A process that has not launched for a minute is looked at once a second, and after ten minutes, as before
// its first launch, not at all. Thread: the probe's own. Allocation: none. Pure: tests feed it any clock.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

class GapWatch {
 public:
  static constexpr uint64_t kMsNs = 1'000'000;
  static constexpr uint64_t kGapNs = kMsNs;
  static constexpr uint64_t kIdleNs = 60'000 * kMsNs;
  static constexpr uint64_t kGivenUpNs = 600'000 * kMsNs;
  static constexpr uint32_t kLooksOfALaunchingProcess = 4;  // for one sample
  // No sample stands for more: a process that was stopped did nothing meanwhile.
  static constexpr uint64_t kMostStoodForNs = 2000 * kMsNs;

  struct Sample {
    uint64_t since_ns = 0;  // what it stands for begins here
    bool in_gap = false;
  };

  // `launched_ns`: the process's latest launch, 0: none yet. False: no sample is to be taken.
  bool Look(uint64_t now_ns, uint64_t launched_ns, Sample* sample) noexcept;
  // Nothing was to be sampled until now.
  void Skip(uint64_t now_ns) noexcept { sampled_ns_ = now_ns; }
  // From the last look to the next, if the budget allows for one every `pace_ns`.
  uint64_t RestNs(uint64_t pace_ns = 0) noexcept;

 private:
  uint64_t sampled_ns_ = 0;  // the latest sample
  uint64_t silent_ns_ = kGivenUpNs;
  uint32_t looks_ = 0;  // without a sample, while it launches
  uint64_t random_ = 0x9e3779b97f4a7c15u;
};

}  // namespace gpuprobe::injector
