// summary.json: a few dozen named numbers of a run, flat, for experiment trackers.
//
// {"gpuprobe/step_seconds_mean": 0.0412, ...}: seconds, bytes and shares from 0 to 1. A number that is not
// known is left out. The names are as public as report.json's, from which each can be computed.
#pragma once

#include <string>

#include "collector/report/report.h"

namespace gpuprobe::render {

inline constexpr char kSummaryFile[] = "summary.json";

std::string SummaryJson(const analysis::Report& report);

}  // namespace gpuprobe::render
