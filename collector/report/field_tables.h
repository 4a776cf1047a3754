// The tables of docs/report-json.md: a row for each declared field.
#pragma once

#include <string>

namespace gpuprobe::report {

// Markdown. An object has a table of its own if it is a part of the report itself, is in several places, or
// has many fields.
std::string FieldTables();

}  // namespace gpuprobe::report
