// The report's numbers as rows of tables, taken from report.json itself, so that the two cannot differ.
//
// `report` has one row: every single value, its path joined by '_' ("steps_time_ns_mean"). Each list of
// objects is a table of its own, named by its path, with the rank it belongs to: "report_ranks",
// "report_ranks_collectives", "report_findings".
#pragma once

#include <functional>
#include <string>

namespace gpuprobe::tables {

// Calls row(text) for each row, as the export would print it.
void ReportRows(const std::string& report_json, const std::function<void(const std::string& row)>& row);

}  // namespace gpuprobe::tables
