// One step of a run, for people: where its time went on each rank, and what in it took longer than usual.
//
// Example: step 30 takes 28.1 ms, the median one 17.3 ms. Rank 5's kernels of one name took 9.8 ms in it, and
// 5.2 ms in the mean of its other steps; the others waited for it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "collector/render/text_layout.h"
#include "collector/tables/database.h"

namespace gpuprobe::cli {

// NotFound: the run has no such step, and which it has. The other errors are the database's.
absl::StatusOr<std::string> OneStepText(tables::Database& database, const std::string& run, uint64_t step,
                                        const render::Layout& layout);

}  // namespace gpuprobe::cli
