// A report in which everything is set that can be: the example from which report.json's schema is made.
//
// A list has one entry, an optional value is there, and the key "*" stands for any key of a map.
#pragma once

#include "collector/analysis/report.h"

namespace gpuprobe::render {

inline constexpr char kAnyKey[] = "*";

analysis::Report FullReport();

}  // namespace gpuprobe::render
