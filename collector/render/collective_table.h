// The table of collectives, communicators of the same role in one row.
//
// Separate because a job of many groups has a communicator for each: what they have in common is the answer,
// and how far they differ.
#pragma once

#include <vector>

#include "collector/render/table.h"
#include "collector/report/collectives.h"

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

// Series of the same operation, size and number of ranks, on communicators that share no rank: groups of one
// kind, tensor-parallel ones or data-parallel ones. In the order of their first; each as its series.
std::vector<std::vector<const analysis::CollectiveReport*>> FoldRoles(
    const std::vector<analysis::CollectiveReport>& collectives);

// Without rows when there are no collectives.
Table CollectivesTable(const analysis::Report& report);

}  // namespace gpuprobe::render
