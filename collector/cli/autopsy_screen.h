// What `gpuprobe autopsy` prints of the flight recorders' rings.
#pragma once

#include <string>
#include <vector>

#include "collector/report/last_moments.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {

// Who is furthest behind comes first: by the calls on the communicator that most of them share, then by the
// last sign of life.
void SortByProgress(std::vector<analysis::LastMoments>& all);

std::string AutopsyText(const std::vector<analysis::LastMoments>& all);
nlohmann::ordered_json AutopsyJson(const std::vector<analysis::LastMoments>& all);

}  // namespace gpuprobe::cli
