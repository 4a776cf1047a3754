// The named scenarios of `gpuprobe simulate`: what goes wrong in each, and which findings a good report must
// and may give.
//
// One table: the list, the help and the suite of tests derive from it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/simulate/training_job.h"

namespace gpuprobe::simulate {

struct Scenario {
  std::string_view name;
  std::string_view summary;
  std::string_view first_finding;                  // the one that must come first
  std::vector<std::string_view> further_findings;  // that are true as well
  TrainingJob job;
};

std::span<const Scenario> Scenarios();
// NotFound lists the names.
absl::StatusOr<const Scenario*> FindScenario(std::string_view name);

}  // namespace gpuprobe::simulate
