// Options that several subcommands share, one struct an option or a few that belong together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collector/recording/options.h"
#include "collector/report/report.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace gpuprobe::cli {

// --out and --name of the subcommands that record one job.
struct PlaceOption {
  std::string out;
  std::string name;  // in the default of --out

  void AddTo(CLI::App& app);
};

// --keep of the subcommands that record.
struct KeepOption {
  static constexpr uint64_t kDefaultBytes = uint64_t{2} << 30;
  static constexpr uint64_t kSmallestBytes = uint64_t{16} << 20;  // below, totals would crowd out the detail

  uint64_t bytes = kDefaultBytes;

  void AddTo(CLI::App& app);
};

// --step-marker of the subcommands that record or report.
struct StepMarkerOption : recording::ChosenMarker {
  void AddTo(CLI::App& app);
};

// --hang-after and --link-peak of the subcommands that record or report: parameters for the analysis of
// ranks.
struct RankOptions : recording::HangOptions {
  void AddTo(CLI::App& app);
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
