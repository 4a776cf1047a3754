#include "collector/recording/options.h"

#include "collector/store/run_settings.h"

namespace gpuprobe::recording {

void ChosenMarker::TakeFrom(const std::string& run_directory) {
  if (!text.empty()) return;
  const std::string recorded = store::ReadRunSettings(run_directory).step_marker;
  const absl::StatusOr<model::StepMarker> parsed = model::StepMarker::Parse(recorded);
  if (recorded.empty() || !parsed.ok()) return;
  marker = *parsed;
  text = recorded;
}

}  // namespace gpuprobe::recording
