#include "collector/cli/recorded_steps_option.h"

#include <cstdlib>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"

namespace gpuprobe::cli {
namespace {

constexpr char kMarker[] = "GPUPROBE_STEP_MARKER";
constexpr char kStart[] = "GPUPROBE_START_STEP";
constexpr char kStop[] = "GPUPROBE_STOP_STEP";
constexpr char kEvery[] = "GPUPROBE_EVERY_STEPS";
constexpr char kLevel[] = "GPUPROBE_LEVEL";

bool InEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

void RecordedStepsOption::AddTo(CLI::App& app) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  app.add_option(
         "--level", level,
         "full; calls: record collectives and steps, and more only of ranks that are late; or idle: record "
         "nothing but allocations and communicators until gpuprobe capture asks for some steps [full]")
      ->check(OneOf({"idle", "calls", "full"}))
      ->option_text("LEVEL");
  app.add_option("--start-step", start,
                 "record from this step on, counted from 0; needs --step-marker nvtx:NAME or collective:OP/N")
      ->check(WholeNumber(0, kMost))
      ->option_text("N");
  app.add_option("--stop-step", stop, "record nothing from this step on")
      ->check(WholeNumber(1, kMost))
      ->option_text("N");
  app.add_option("--every-steps", every, "record only the first of every N steps")
      ->check(WholeNumber(1, 1'000'000))
      ->option_text("N");
}

absl::Status CheckProbeMarker(const model::StepMarker& marker) {
  using Kind = model::StepMarker::Kind;
  if (marker.kind() == Kind::kNvtx || (marker.kind() == Kind::kCollective && marker.calls() > 0))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the probe selects the steps to record inside the program, from ranges and calls: use "
                   "--step-marker nvtx:NAME or ",
                   "collective:OP/N (N calls of OP per step), got \"", marker.text(), "\""));
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> RecordedStepsOption::Environment(
    const model::StepMarker& marker) const {
  std::vector<std::pair<std::string, std::string>> environment;
  for (const auto& [name, value] :
       {std::pair(kStart, start), std::pair(kStop, stop), std::pair(kEvery, every)}) {
    if (value.has_value()) environment.emplace_back(name, absl::StrCat(*value));
  }
  const bool chooses = !environment.empty();
  if (!level.empty()) environment.emplace_back(kLevel, level);
  const char* const before = std::getenv(kLevel);
  const std::string chosen = level.empty() && before != nullptr ? before : level;
  const bool on_demand = chosen == "idle" || chosen == "calls";
  if (on_demand && chooses) {
    return absl::InvalidArgumentError(
        absl::StrCat("--start-step, --stop-step and --every-steps are for level full; at level ", chosen,
                     " gpuprobe capture chooses the steps"));
  }
  const bool asked =
      on_demand || chooses || InEnvironment(kStart) || InEnvironment(kStop) || InEnvironment(kEvery);
  if (stop.has_value() && *stop <= start.value_or(0)) {
    return absl::InvalidArgumentError(absl::StrCat("--stop-step must be greater than --start-step (", *stop,
                                                   " is not above ", start.value_or(0), ")"));
  }
  const bool marked = marker.kind() != model::StepMarker::Kind::kNone;
  if (!asked || (!marked && InEnvironment(kMarker))) return environment;
  if (!marked) {
    // The probe itself reports mistakes in the environment's own variables.
    if (!chooses) return environment;
    return absl::InvalidArgumentError(absl::StrCat(
        "--start-step, --stop-step and --every-steps need --step-marker nvtx:NAME or collective:OP/N, or ",
        kMarker));
  }
  if (absl::Status s = CheckProbeMarker(marker); !s.ok()) return s;
  environment.emplace_back(kMarker, marker.text());
  return environment;
}

}  // namespace gpuprobe::cli
