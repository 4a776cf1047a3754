// Holds the budget: compares what the probe costs with what it may cost, and says how much to record.
//
// Separate from who carries it out (capture/cupti/session.h) so that the rule can be tested by itself. The cost is
// the time of our code on the application's threads and in CUPTI's completion of buffers, over wall time. A
// window over the budget sheds one level; kCalmWindows windows under a quarter of it give one back, and twice
// as many each time that giving back was too early. kDetailLevelOff is for good: nothing is measured there.
// kDetailLevelGraphs is no step of this: it cannot be taken once there are graphs (capture/cupti/session.cc).
// Thread: the probe's own. Allocation: none.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"

namespace gpuprobe::injector {

class Governor {
 public:
  static constexpr uint64_t kWindowNs = 2'000'000'000;
  static constexpr uint32_t kCalmWindows = 15;
  static constexpr uint32_t kMaxCalmWindows = 480;

  // `budget_percent` of wall time; 0: there is none. `least` is shed on request, and never given back.
  void Init(uint32_t budget_percent, wire::DetailLevel least, uint64_t window_ns = kWindowNs) noexcept;

  // The level that shall hold now. `cost_ns` is what the probe has cost so far.
  wire::DetailLevel Judge(uint64_t now_ns, uint64_t cost_ns) noexcept;

  wire::DetailLevel level() const noexcept { return static_cast<wire::DetailLevel>(level_); }
  uint64_t reductions() const noexcept { return reductions_; }
  // Time with less than full detail so far.
  uint64_t reduced_ns() const noexcept { return reduced_ns_; }

 private:
  uint32_t budget_percent_ = 0;
  uint64_t window_ns_ = kWindowNs;
  int32_t least_ = 0;
  int32_t level_ = 0;
  uint64_t last_ns_ = 0;  // of Judge
  uint64_t window_began_ns_ = 0;
  uint64_t cost_then_ns_ = 0;
  uint32_t calm_ = 0;
  uint32_t calm_needed_ = kCalmWindows;
  bool gave_back_ = false;  // and has not shed since
  uint64_t reductions_ = 0;
  uint64_t reduced_ns_ = 0;
};

}  // namespace gpuprobe::injector
