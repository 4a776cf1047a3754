// The alpha-beta model of every (operation, communicator), fitted to the transfers of its sizes.
//
// Separate because the fit has its own rules. Weighted least squares on relative errors, since a plain fit
// would be that of the largest size alone; sizes that stray are weighted down (Huber). Sources: Hockney's
// model, T(n) = alpha + n / beta; ring and tree after formulas.md: a ring all-reduce of P ranks takes 2 (P -
// 1) alpha + 2 (P - 1) / P n / beta, a tree 2 ceil(log2 P) alpha + 2 n / beta.
#pragma once

#include <span>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/report/links.h"

namespace gpuprobe::analysis {

inline constexpr size_t kLeastSizesFitted = 3;

struct TransferPoint {
  double bus_bytes = 0;
  double time_ns = 0;
  double calls = 0;
};
struct AlphaBeta {
  double alpha_ns = 0;
  double ns_per_byte = 0;
  // Standard errors: s2 (X' W X)^-1 of weighted least squares, with s2 the weighted squares of the residuals
  // over the degrees of freedom. 0 with two points, which leave no residuals.
  double alpha_error_ns = 0;
  double ns_per_byte_error = 0;
};
// Needs two different sizes at least; `points` with times above 0.
AlphaBeta FitAlphaBeta(std::span<const TransferPoint> points);

// Models of everything with at least kLeastSizesFitted sizes; most calls first.
std::vector<LinkModel> LinkModelsOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
