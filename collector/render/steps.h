// The steps of a report as a table for people.
#pragma once

#include <string>

#include "collector/render/table.h"

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

}  // namespace gpuprobe::render
