// What a recorder is asked for, whichever command asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/steps/step_marker.h"

namespace gpuprobe::recording {

struct ChosenMarker {
  model::StepMarker marker;
  std::string text;  // as it was given; empty: it was not

  // Where it was not given: what the run in this directory was recorded with.
  void TakeFrom(const std::string& run_directory);
};

struct HangOptions {
  uint64_t seconds = analysis::kDefaultHangAfterNs / 1'000'000'000;  // that a collective may wait
  std::optional<double> link_peak;                                   // 1e9 bytes per second

  uint64_t after_ns() const { return seconds * 1'000'000'000; }
};

}  // namespace gpuprobe::recording
