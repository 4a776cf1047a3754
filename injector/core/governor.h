// Enforces the overhead budget: compares the probe's cost with its budget and chooses the level of detail.
//
// The cost is the time of our code on the application's threads and in CUPTI's buffer completion, and the
// least that CUPTI is estimated to add to launches (proto/cupti_cost.h), over wall time. A window over the
// budget drops one level of detail. kCalmWindows windows under a quarter of the budget restore one, and that
// number doubles each time a level was restored too early. kDetailLevelOff is final: nothing is measured
// there. kDetailLevelGraphs is not among these levels: it cannot be chosen once there are graphs
// (capture/cupti/session.cc). capture/cupti/session.h applies the level, so that the rule can be tested by
// itself. Thread: the probe's own. Allocation: none.
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

  // The level to use from now on. `cost_ns` is what the probe has cost so far.
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
