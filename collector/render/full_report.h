// Reports that differ as much as reports can: the examples from which report.json's schema is made.
//
// In each, lists have an entry, and the key "*" stands for any key of a map. In the full one every optional
// value is there; in the bare one optional objects are there, and nothing that is optional in them; in the
// sparse one optional objects of entries are not there.
#pragma once

#include "collector/analysis/report.h"

namespace gpuprobe::render {

inline constexpr char kAnyKey[] = "*";

analysis::Report FullReport();
analysis::Report BareReport();
analysis::Report SparseReport();

}  // namespace gpuprobe::render
