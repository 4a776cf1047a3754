#include "collector/cli/recorded_steps_option.h"

#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {
namespace {

constexpr char kMarker[] = "GPUPROBE_STEP_MARKER";
constexpr char kStart[] = "GPUPROBE_START_STEP";
constexpr char kStop[] = "GPUPROBE_STOP_STEP";
constexpr char kEvery[] = "GPUPROBE_EVERY_STEPS";

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool TakeSuffix(std::string_view* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

bool InEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

void RecordedStepsOption::AddTo(CLI::App& app) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  app.add_option("--start-step", start,
                 "record from this step on, counted from 0; needs --step-marker nvtx:NAME")
      ->check(CLI::Range(uint64_t{0}, kMost))
      ->option_text("N");
  app.add_option("--stop-step", stop, "record nothing from this step on")
      ->check(CLI::Range(uint64_t{1}, kMost))
      ->option_text("N");
  app.add_option("--every-steps", every, "record the first of so many steps only")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}))
      ->option_text("N");
}

absl::StatusOr<std::string> ProbeMarker(const std::string& marker) {
  std::string_view name = marker;
  if (!TakePrefix(&name, "nvtx:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps are recorded by --step-marker nvtx:NAME, or by calls: ", kMarker,
                     "=collective:OP/N; the probe does not see what ", marker, " marks"));
  }
  bool open_start = !TakePrefix(&name, "^");
  bool open_end = !TakeSuffix(&name, "$");
  open_start = TakePrefix(&name, ".*") || open_start;
  open_end = TakeSuffix(&name, ".*") || open_end;
  if (name.empty() || name.find_first_of("\\^$.*+?()[]{}|") != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "which steps are recorded is decided in the program, by a range's name, not by a regular "
        "expression: ",
        marker, " is more than a name (^ before and $ after it may be)"));
  }
  return absl::StrCat("nvtx:", open_start ? "*" : "", std::string(name), open_end ? "*" : "");
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> RecordedStepsOption::Environment(
    const std::string& marker) const {
  std::vector<std::pair<std::string, std::string>> environment;
  for (const auto& [name, value] :
       {std::pair(kStart, start), std::pair(kStop, stop), std::pair(kEvery, every)}) {
    if (value.has_value()) environment.emplace_back(name, absl::StrCat(*value));
  }
  const bool asked =
      !environment.empty() || InEnvironment(kStart) || InEnvironment(kStop) || InEnvironment(kEvery);
  if (stop.has_value() && *stop <= start.value_or(0))
    return absl::InvalidArgumentError("--stop-step must be greater than --start-step");
  if (!asked || (marker.empty() && InEnvironment(kMarker))) return environment;
  if (marker.empty()) {
    // The environment's own is said by the probe.
    if (environment.empty()) return environment;
    return absl::InvalidArgumentError(
        absl::StrCat("which steps are recorded needs --step-marker nvtx:NAME, or ", kMarker));
  }
  absl::StatusOr<std::string> for_probe = ProbeMarker(marker);
  if (!for_probe.ok()) return for_probe.status();
  environment.emplace_back(kMarker, *std::move(for_probe));
  return environment;
}

}  // namespace gpuprobe::cli
