// What report.json looks like, made from its declared fields.
#pragma once

#include "nlohmann/json.hpp"

namespace gpuprobe::report {

// JSON Schema 2020-12. Unknown fields are allowed: changes are additive.
nlohmann::ordered_json ReportSchema();

}  // namespace gpuprobe::report
