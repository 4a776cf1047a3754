// The memory part of a rank's report: high-water marks with what made them, and refused allocations.
//
// Separate because it only needs one process's ledger and the names of its ranges.
#pragma once

namespace gpuprobe::model {
struct Member;
}

namespace gpuprobe::analysis {

struct RankReport;

void FillMemory(const model::Member& member, RankReport& rank);

}  // namespace gpuprobe::analysis
