// Words that a hang's statement, evidence and advice share.
#pragma once

#include <string>

#include "collector/analysis/hangs/hang.h"

namespace gpuprobe::analysis {

// "rank 3", "pid 4711"
std::string HangRankName(const HangRank& r);
// "ranks 1, 2", with how many more there are.
std::string HangRankNames(const Hang& hang);
std::string Capital(std::string text);
// It runs, on the host alone.
bool IsBusyOnHost(const HangRank& r);
// The ranks at fault cannot run.
bool IsHalted(const Hang& hang);

}  // namespace gpuprobe::analysis
