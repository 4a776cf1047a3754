#include "collector/analysis/memory/lifetime_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/names.h"
#include "collector/analysis/steps/step_report.h"
#include "collector/analysis/units.h"
#include "collector/model/statistics/whole_number.h"
#include "collector/report/words.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kMostGrowth = 8;

std::vector<MemoryLifetimesReport::Growth> GrowthOf(const model::MemoryLifetimes& lifetimes) {
  // Allocations kept once in a while (an average of weights, a larger evaluation) are not growth per step.
  constexpr double kLeastShare = 0.5;
  constexpr uint64_t kLeastSteps = 5;
  std::vector<MemoryLifetimesReport::Growth> growth;
  const auto steps = static_cast<double>(lifetimes.later_steps());
  if (lifetimes.later_steps() < kLeastSteps) return growth;
  for (const auto& [size, kept] : lifetimes.kept()) {
    if (kept.bytes == 0 || static_cast<double>(kept.steps) < kLeastShare * steps) continue;
    // As many as one step's are only not freed yet.
    const double per_step = static_cast<double>(kept.allocations) / steps;
    if (static_cast<double>(kept.allocations) < 0.5 * static_cast<double>(kept.steps)) continue;
    growth.push_back({.size_bytes = size.first,
                      .phase = report::Word(size.second),
                      .allocations_per_step = per_step,
                      .bytes_per_step = static_cast<double>(kept.bytes) / steps});
  }
  std::sort(growth.begin(), growth.end(),
            [](const auto& a, const auto& b) { return a.bytes_per_step > b.bytes_per_step; });
  if (growth.size() > kMostGrowth) growth.resize(kMostGrowth);
  return growth;
}

}  // namespace

std::optional<MemoryLifetimesReport> LifetimesOf(const model::MemoryLifetimes& lifetimes) {
  if (lifetimes.steps() == 0) return std::nullopt;
  const model::MemoryLifetimes::Peak& peak = lifetimes.peak();
  MemoryLifetimesReport report{.why_not = {},
                               .steps = lifetimes.steps(),
                               .peak_step = peak.step,
                               .peak_at_ns = peak.time_ns,
                               .peak_bytes = peak.bytes,
                               .parts = {},
                               .from_backward_bytes_per_step = lifetimes.from_backward_bytes_per_step(),
                               .holdings = {},
                               .growth = GrowthOf(lifetimes),
                               .unknown_frees = lifetimes.unknown_frees(),
                               .missed_frees = lifetimes.missed_frees(),
                               .not_followed = lifetimes.not_followed()};
  for (size_t i = 0; i < model::kLifetimes; ++i) {
    if (peak.parts[i] == 0) continue;
    report.parts.push_back({.lifetime = static_cast<model::Lifetime>(i), .bytes = peak.parts[i]});
  }
  std::sort(report.parts.begin(), report.parts.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return report;
}

std::optional<MemoryLifetimesReport> DriverLifetimesOf(const model::MemoryLifetimes& lifetimes,
                                                       const std::optional<MemoryTrend>& driver,
                                                       const std::optional<MemoryTrend>& pytorch) {
  constexpr double kSame = 0.5;
  std::optional<MemoryLifetimesReport> report = LifetimesOf(lifetimes);
  if (!report.has_value() || !pytorch.has_value()) return report;
  const auto moved = [](const std::optional<MemoryTrend>& trend) {
    return trend.has_value() ? static_cast<double>(trend->within_step_bytes) : 0;
  };
  if (moved(driver) >= kSame * moved(pytorch)) return report;
  MemoryLifetimesReport hidden;
  hidden.why_not = absl::StrFormat(
      "PyTorch's caching allocator keeps memory that tensors free: driver allocations vary by %s within a "
      "step, tensors by %s",
      Bytes(model::WholeNumber(moved(driver))), Bytes(model::WholeNumber(moved(pytorch))));
  hidden.steps = report->steps;
  return hidden;
}

std::string GrowthText(const MemoryLifetimesReport& report) {
  if (report.growth.empty()) return {};
  const MemoryLifetimesReport::Growth& most = report.growth.front();
  const std::string count = absl::StrFormat("%.3g", most.allocations_per_step);
  const bool one = most.size_bytes != 0 && count == "1";
  const std::string what =
      most.size_bytes == 0
          ? std::string("Allocations of many sizes")
          : absl::StrCat(count, one ? " allocation of " : " allocations of ", Bytes(most.size_bytes));
  return absl::StrFormat("%s made in %s of each step %s never freed: %s per step.", what, most.phase,
                         one ? "is" : "are", Bytes(model::WholeNumber(most.bytes_per_step)));
}

}  // namespace gpuprobe::analysis
