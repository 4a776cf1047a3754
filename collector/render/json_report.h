// report.json: the public, versioned form of the report. Documented field by field in docs/report-json.md,
// beside this file. If the details of every rank would make it larger than kReportBytes, it has only enough
// of each rank to choose which to look at, and everything else is in ranks.json beside it.
#pragma once

#include <cstddef>
#include <string>

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

inline constexpr size_t kReportBytes = 1'000'000;
inline constexpr char kReportFile[] = "report.json";
inline constexpr char kRanksFile[] = "ranks.json";

// Everything in one, whatever its size.
std::string JsonReport(const analysis::Report& report);

struct JsonFiles {
  std::string report;
  std::string ranks;  // empty: all is in the report
};
JsonFiles JsonReportFiles(const analysis::Report& report);

// docs/report.schema.json
std::string ReportSchema();

}  // namespace gpuprobe::render
