// Two reports that differ as much as reports can: the examples from which report.json's schema is made.
//
// In both, every list has an entry, and the key "*" stands for any key of a map. In the full one every
// optional value of an entry is there, in the bare one none is.
#pragma once

#include "collector/analysis/report.h"

namespace gpuprobe::render {

inline constexpr char kAnyKey[] = "*";

analysis::Report FullReport();
analysis::Report BareReport();

}  // namespace gpuprobe::render
