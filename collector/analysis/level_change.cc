#include "collector/analysis/level_change.h"

#include <algorithm>
#include <cmath>

#include "collector/analysis/median.h"
#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {

std::optional<LevelChange> LevelChangeOf(const std::vector<double>& values, double ratio) {
  const size_t n = values.size();
  if (n < 2 * thresholds::kSlowedBlocks) return std::nullopt;
  // Where two levels explain most of the logarithms' variance.
  std::vector<double> sums(n + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    if (values[i] <= 0) return std::nullopt;
    sums[i + 1] = sums[i] + std::log(values[i]);
  }
  LevelChange best;
  double most = 0;
  for (size_t k = thresholds::kSlowedBlocks; k + thresholds::kSlowedBlocks <= n; ++k) {
    const auto left = static_cast<double>(k);
    const auto right = static_cast<double>(n - k);
    const double apart = sums[k] / left - (sums[n] - sums[k]) / right;
    const double explained = apart * apart * left * right;
    if (explained <= most) continue;
    most = explained;
    best.place = k;
  }
  if (best.place == 0) return std::nullopt;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(best.place);
  best.before = UpperMedian({values.begin(), middle});
  best.after = UpperMedian({middle, values.end()});
  const double low = std::min(best.before, best.after);
  const double high = std::max(best.before, best.after);
  if (high < ratio * low) return std::nullopt;
  // A drift has two halves as well: its values do not change where they meet.
  constexpr double kSharp = 0.5;
  const auto step = static_cast<ptrdiff_t>(thresholds::kSlowedBlocks);
  const double change = UpperMedian({middle, middle + step}) - UpperMedian({middle - step, middle});
  if (std::abs(change) < kSharp * (high - low)) return std::nullopt;
  // A level, not a few calls: nearly all values are on their own side.
  const double border = std::sqrt(low * high);
  size_t right_side = 0;
  for (size_t i = 0; i < n; ++i)
    right_side += ((values[i] > border) == ((i < best.place) == (best.before > best.after))) ? 1 : 0;
  if (static_cast<double>(right_side) < thresholds::kSlowedOnItsSideShare * static_cast<double>(n))
    return std::nullopt;
  return best;
}

}  // namespace gpuprobe::analysis
