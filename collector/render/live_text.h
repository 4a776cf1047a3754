// The text shown while a job runs: one line, or a screen with one row per rank.
//
// Separate from the report's text because it covers the last moments, and changes every second.
#pragma once

#include <string>

#include "collector/analysis/live_status.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::render {

// "8 ranks on n1, 8 x NVIDIA L40S, CUDA 13.0, NCCL 2.28.9"
std::string LiveIntroduction(const analysis::LiveStatus& status);
// "step 118  412 ms  compute 61%  ...", without an end of line.
std::string LiveLine(const analysis::LiveStatus& status, const Screen& screen = {});
// Introduction, line, and one row per rank; with many ranks, those that are late most.
inline constexpr size_t kLiveRanks = 32;
std::string LiveScreen(const analysis::LiveStatus& status);

}  // namespace gpuprobe::render
