// The live status as JSON: what `gpuprobe top` shows, for the page and for programs. docs/http-api.md
// describes the document.
#pragma once

#include <string>

#include "collector/analysis/live_status.h"

namespace gpuprobe::render {

// On one line.
std::string LiveJson(const analysis::LiveStatus& status);

}  // namespace gpuprobe::render
