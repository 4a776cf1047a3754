// Enforces the overhead budget: compares the probe's cost with its budget and says how much is recorded.
//
// The cost is the time of our code on the application's threads and in CUPTI's buffer completion, and the
// least that CUPTI is estimated to add to launches (proto/cupti_cost.h), over wall time. kPatience windows in
// a row over the budget drop one level: first recording ends, as at GPUPROBE_STOP_AFTER_S
// (kDetailLevelCallbacks), and if what is left costs too much as well, everything does (kDetailLevelOff).
// Nothing is given back: on real GPUs, kinds that are switched on again lose records, and those that are
// switched off keep most of their cost (docs/real-hardware.md). Thread: the probe's own. Allocation: none.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"

namespace gpuprobe::injector {

class Governor {
 public:
  static constexpr uint64_t kWindowNs = 1'000'000'000;
  static constexpr uint32_t kPatience = 3;

  // `budget_percent` of wall time; 0: there is none. `level`: what was asked for.
  void Init(uint32_t budget_percent, wire::DetailLevel level) noexcept;

  // The level to use from now on. `cost_ns` is what the probe has cost so far.
  wire::DetailLevel Judge(uint64_t now_ns, uint64_t cost_ns) noexcept;

  uint64_t reductions() const noexcept { return reductions_; }
  // Since the first reduction.
  uint64_t reduced_ns() const noexcept { return reduced_since_ns_ == 0 ? 0 : last_ns_ - reduced_since_ns_; }

 private:
  uint32_t budget_percent_ = 0;
  wire::DetailLevel level_ = wire::DetailLevel::kDetailLevelFull;
  uint64_t last_ns_ = 0;  // of Judge
  uint64_t window_began_ns_ = 0;
  uint64_t cost_then_ns_ = 0;
  uint32_t over_ = 0;  // windows in a row
  uint64_t reductions_ = 0;
  uint64_t reduced_since_ns_ = 0;
};

}  // namespace gpuprobe::injector
