// Kernels, copies, phases and utilisation as JSON.
#pragma once

#include <vector>

#include "collector/analysis/report/phases.h"
#include "collector/analysis/report/utilisation.h"
#include "collector/analysis/report/work.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

nlohmann::ordered_json PhasesJson(const std::vector<analysis::PhaseReport>& phases);
nlohmann::ordered_json KernelsJson(const std::vector<analysis::KernelReport>& kernels);
nlohmann::ordered_json ComputeJson(const analysis::ComputeReport& c);
// null: it was not asked for.
nlohmann::ordered_json UtilisationJson(const analysis::UtilisationReport& u);

}  // namespace gpuprobe::render
