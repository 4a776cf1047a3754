// The table of what memory is held by, for the rank that holds most.
//
// Separate from table.cc because of its words: lifetimes are measured, what lives so long is inferred.
#pragma once

#include "collector/analysis/report.h"
#include "collector/render/table.h"

namespace gpuprobe::render {

// Without rows where lifetimes are not known.
Table MemoryTable(const analysis::Report& report);

}  // namespace gpuprobe::render
