// report.json: the public, versioned form of the report. Documented field by field in REPORT_JSON.md beside
// this file.
#pragma once

#include <string>

#include "collector/analysis/report.h"

namespace gpuprobe::render {

// Additive changes keep the number; a change of meaning or a removal raises it.
inline constexpr int kReportSchemaVersion = 1;

std::string JsonReport(const analysis::Report& report);

}  // namespace gpuprobe::render
