// The steps of a report as a table for people and as JSON.
//
// Separate from table.cc and json_report.cc, which lay out everything else.
#pragma once

#include <optional>
#include <string>

#include "collector/analysis/report/steps.h"
#include "collector/render/table.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

inline constexpr char kStepsTable[] = "steps";
// Without rows when no step was found.
Table StepsTable(const analysis::Report& report);
// What of the devices' peak the model's arithmetic used, a sentence with its basis; empty if it was not asked
// for.
std::string UtilisationLine(const analysis::Report& report);
// A statistics object of report.json.
nlohmann::ordered_json StatisticsJson(const model::Summary& s);
// null when no step was found.
nlohmann::ordered_json StepsJson(const std::optional<analysis::StepsReport>& steps);

}  // namespace gpuprobe::render
