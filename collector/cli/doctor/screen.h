// What `gpuprobe doctor` prints: a line for each check, the remedy beneath.
#pragma once

#include <string>

#include "collector/cli/doctor/checks.h"
#include "collector/render/text_layout.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli::doctor {

// "1 problem, 2 warnings, 1 note", "nothing stands in the way"
std::string Verdict(const Checks& checks);
// Whether one is worse than a note.
bool NeedsAttention(const Checks& checks);

std::string Text(const Checks& checks, const render::Screen& screen);
nlohmann::ordered_json Json(const Checks& checks);

}  // namespace gpuprobe::cli::doctor
