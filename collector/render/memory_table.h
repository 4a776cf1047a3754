// The table of what holds memory, for the rank that holds most.
//
// Separate from table.cc because of its words: lifetimes are measured, categories are inferred from them.
#pragma once

#include "collector/analysis/report.h"
#include "collector/render/table.h"

namespace gpuprobe::render {

// Without rows where lifetimes are not known.
Table MemoryTable(const analysis::Report& report);

}  // namespace gpuprobe::render
