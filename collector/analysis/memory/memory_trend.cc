#include "collector/analysis/memory/memory_trend.h"

#include <algorithm>
#include <vector>

#include "collector/analysis/median.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/trend.h"
#include "collector/model/statistics/whole_number.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kMostWindows = 48;

// How many are greater than all before them.
size_t Rises(const std::vector<double>& values) {
  size_t rises = 0;
  double greatest = values.front();
  for (const double value : values) {
    rises += value > greatest ? 1 : 0;
    greatest = std::max(greatest, value);
  }
  return rises;
}

}  // namespace

std::optional<MemoryTrend> TrendOf(const model::LevelHistory& history,
                                   const std::vector<uint64_t>& step_starts_ns,
                                   std::optional<uint64_t> capacity_bytes) {
  if (history.empty() || step_starts_ns.size() <= kLeastStepsForTrend) return std::nullopt;
  const size_t steps = step_starts_ns.size() - 1;  // the last one's end is not known
  // A window holds whole steps, and several buckets, so that its least level is that between two steps.
  const uint64_t pace_ns = std::max<uint64_t>((step_starts_ns.back() - step_starts_ns.front()) / steps, 1);
  const size_t group =
      std::max<size_t>((steps + kMostWindows - 1) / kMostWindows, 2 * history.width_ns() / pace_ns);
  const size_t windows = steps / std::max<size_t>(group, 1);
  if (windows == 0) return std::nullopt;
  std::vector<double> floors;
  MemoryTrend trend;
  std::vector<double> within;
  uint64_t top = 0;
  for (size_t i = 0; i < windows; ++i) {
    // The groups end with the last step.
    const size_t first = steps - (windows - i) * group;
    const model::LevelHistory::Bucket level =
        history.Within(step_starts_ns[first], step_starts_ns[first + group]);
    floors.push_back(static_cast<double>(level.least));
    within.push_back(static_cast<double>(level.greatest - level.least));
    trend.peak_bytes = std::max(trend.peak_bytes, level.greatest);
    top = level.greatest;
  }
  trend.held_bytes = model::WholeNumber(floors.back());
  trend.within_step_bytes = model::WholeNumber(UpperMedian(std::move(within)));
  if (windows < thresholds::kLeakWindows) return trend;
  const double slope = SlopeOf(floors);
  const std::vector<double> last(floors.end() - static_cast<ptrdiff_t>(windows / 3 + 1), floors.end());
  const double rise = slope * static_cast<double>(windows);
  if (RisingScore(floors) < thresholds::kLeakZScore || Rises(floors) < thresholds::kLeakRises ||
      SlopeOf(last) < thresholds::kStillRisingSlopeShare * slope ||
      rise < thresholds::kLeakLevelShare * floors.back()) {
    return trend;
  }
  const double per_step = slope / static_cast<double>(group);
  trend.growth_bytes_per_step = per_step;
  if (capacity_bytes.has_value() && *capacity_bytes > top)
    trend.steps_until_full = static_cast<double>(*capacity_bytes - top) / per_step;
  return trend;
}

}  // namespace gpuprobe::analysis
