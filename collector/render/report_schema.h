// The JSON Schema of report.json, made from what writes report.json.
//
// Reports in which everything is set, and nothing, are written as JSON; the schema is what they have in
// common. A field that is null in one of them may be null; one that is missing in one of them is not
// required. Unknown fields are allowed: changes are additive.
#pragma once

#include <string>

namespace gpuprobe::render {

// JSON Schema 2020-12.
std::string ReportSchema();

}  // namespace gpuprobe::render
