// A rank's memory as JSON.
#pragma once

#include "nlohmann/json.hpp"

namespace gpuprobe::analysis {
struct RankReport;
}

namespace gpuprobe::render {

nlohmann::ordered_json MemoryJson(const analysis::RankReport& r);
nlohmann::ordered_json DeviceMemoryJson(const analysis::RankReport& r);
nlohmann::ordered_json OutOfMemoryJson(const analysis::RankReport& r);

}  // namespace gpuprobe::render
