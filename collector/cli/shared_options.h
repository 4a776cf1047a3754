// Options that several subcommands share, one struct an option or a few that belong together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collector/analysis/hang.h"
#include "collector/analysis/report.h"
#include "collector/model/steps/step_marker.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace gpuprobe::cli {

// --keep of the subcommands that record.
struct KeepOption {
  static constexpr uint64_t kDefaultBytes = uint64_t{2} << 30;
  static constexpr uint64_t kSmallestBytes = uint64_t{16} << 20;  // below, totals would crowd out the detail

  uint64_t bytes = kDefaultBytes;

  void AddTo(CLI::App& app);
};

// --step-marker of the subcommands that record or report.
struct StepMarkerOption {
  model::StepMarker marker;
  std::string text;  // as it was given; empty: it was not

  void AddTo(CLI::App& app);
  // Where it was not given: what the run in this directory was recorded with.
  void TakeFrom(const std::string& run_directory);
};

// --hang-after and --link-peak of the subcommands that record or report: parameters for the analysis of
// ranks.
struct RankOptions {
  uint64_t seconds = analysis::kDefaultHangAfterNs / 1'000'000'000;
  std::optional<double> link_peak;  // 1e9 bytes per second

  void AddTo(CLI::App& app);
  uint64_t after_ns() const { return seconds * 1'000'000'000; }
};

// The arithmetic of a step, for the utilisation of the devices.
struct ModelWorkOption {
  analysis::ModelWork work;

  void AddTo(CLI::App& app);
};

// --no-color of the subcommands that print text.
struct ColorOption {
  bool no_color = false;

  void AddTo(CLI::App& app);
};

// --status of `run`.
struct StatusOption {
  static constexpr uint64_t kDefaultSeconds = 10;
  uint64_t seconds = kDefaultSeconds;  // between lines; 0: none

  void AddTo(CLI::App& app);
};

}  // namespace gpuprobe::cli
