// The table of what holds memory, for the rank that holds most.
//
// Separate from table.cc because of its words: lifetimes are measured, categories are inferred from them.
#pragma once

#include <vector>

#include "collector/render/table.h"

namespace gpuprobe::analysis {
struct RankReport;
}

namespace gpuprobe::render {

// Without rows where lifetimes are not known.
Table MemoryTable(const std::vector<analysis::RankReport>& ranks);

}  // namespace gpuprobe::render
