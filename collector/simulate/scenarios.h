// The named scenarios of `gpuprobe simulate`: what goes wrong in each.
//
// One table: the list, the help and the suite of tests derive from it. Which findings a good report must and
// may give is in tests/collector/simulate/expected_findings.cc.
#pragma once

#include <span>
#include <string_view>

#include "collector/simulate/training_job.h"

namespace gpuprobe::simulate {

struct Scenario {
  std::string_view name;
  std::string_view summary;
  TrainingJob job;
};

std::span<const Scenario> Scenarios();
// nullptr: there is none.
const Scenario* FindScenario(std::string_view name);

}  // namespace gpuprobe::simulate
