#include "collector/analysis/lateness.h"

#include <algorithm>
#include <array>

#include "collector/analysis/distributions.h"
#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

using model::LateSteps;

// Late steps below a higher level are of another kind than those at it if they are late by so much less: else
// its lateness is about that level, and crosses it by chance.
constexpr double kByFarLess = 0.5;

// How much longer it makes a step, as the mean over the steps in which it was late.
double LongerBy(const LateSteps::Level& level, const Lateness& lateness) {
  const auto late = static_cast<double>(level.late);
  double longer_ns = lateness.late_by_ns;
  if (level.other_steps_ns.count() >= thresholds::kOnTimeSteps &&
      lateness.share() <= thresholds::kComparedLateStepsShare)
    longer_ns = std::min(
        longer_ns, static_cast<double>(level.late_total_ns) / late - level.other_steps_ns.Summarize().p50);
  if (level.longer_known == 0) return 0;
  longer_ns =
      std::min(longer_ns, static_cast<double>(level.longer_by_ns) / static_cast<double>(level.longer_known));
  return std::max(longer_ns, 0.0);
}

// Steps of all ranks, and those in which one was late.
struct All {
  uint64_t steps = 0;
  uint64_t late = 0;
  size_t ranks = 0;
};

bool ByChance(const LateSteps::Rank& rank, const LateSteps::Level& level, const All& all) {
  // Half an event more: a rate of which no event was seen is not zero (Jeffreys).
  const double others = static_cast<double>(all.ranks) - 1;
  const double rate =
      (static_cast<double>(all.late - level.late) + 0.5) / (static_cast<double>(all.steps - rank.steps) + 1);
  // Where one rank is late at a time, the others are late in the steps that it leaves them.
  const double left =
      (static_cast<double>(level.others_late) + 0.5) / (static_cast<double>(rank.steps - level.late) + 1);
  const double share = left / (others + left);
  const double one = ChanceOfAtLeast(level.late, rank.steps, std::min(std::max(rate, share), 1.0));
  return one * static_cast<double>(all.ranks * LateSteps::kLevels) > thresholds::kLatePValue;
}

// Whether its late steps below the higher level are late by far less than those at it.
bool IsByFarLess(const LateSteps::Level& level, const LateSteps::Level& higher) {
  const auto below = static_cast<double>(level.late - higher.late);
  const auto below_ns = static_cast<double>(level.late_by_ns - higher.late_by_ns);
  const double higher_ns = static_cast<double>(higher.late_by_ns) / static_cast<double>(higher.late);
  return below_ns <= kByFarLess * higher_ns * below;
}

// When it was late: in one stretch, or since some step.
void FindStretch(const LateSteps::Rank& rank, const LateSteps::Level& level, Lateness& l) {
  const model::StepHistory::Stretch stretch = level.history.Densest();
  if (static_cast<double>(stretch.count) <
      thresholds::kStretchLateStepsShare * static_cast<double>(level.late))
    return;
  l.stretch = {stretch.first, stretch.last};
  const uint64_t length = stretch.last - stretch.first + 1;
  if (stretch.count >= thresholds::kLateStepsSince && rank.steps >= length + thresholds::kStepsBeforeLate &&
      static_cast<double>(stretch.count) >= thresholds::kLateSinceStepsShare * static_cast<double>(length) &&
      stretch.last + thresholds::kLastSteps > rank.last_step) {
    l.since_step = stretch.first;
  }
}

}  // namespace

std::vector<Lateness> LatenessOf(const std::vector<LateSteps::Rank>& ranks) {
  std::array<All, LateSteps::kLevels> all;
  for (const LateSteps::Rank& rank : ranks) {
    for (size_t i = 0; i < LateSteps::kLevels; ++i) {
      all[i].steps += rank.steps;
      all[i].late += rank.levels[i].late;
      all[i].ranks += rank.steps > 0 ? 1 : 0;
    }
  }
  std::vector<Lateness> out;
  for (const LateSteps::Rank& rank : ranks) {
    Lateness& l = out.emplace_back();
    l.steps = rank.steps;
    for (size_t i = 0; i < LateSteps::kLevels && rank.levels[i].late > 0 && l.by_chance; ++i) {
      l.by_chance = ByChance(rank, rank.levels[i], all[i]);
      if (!l.by_chance) l.level = i;
    }
    const LateSteps::Level& level = rank.levels[l.level];
    l.late = level.late;
    if (l.late == 0) continue;
    l.late_by_ns = static_cast<double>(level.late_by_ns) / static_cast<double>(level.late);
    l.longer_by_ns = LongerBy(level, l);
    FindStretch(rank, level, l);
    // At a higher level, the small lateness that it shared with the others before does not count.
    for (size_t i = l.level + 1; i < LateSteps::kLevels && !l.by_chance && !l.since_step.has_value(); ++i) {
      const LateSteps::Level& higher = rank.levels[i];
      if (higher.late == 0 || ByChance(rank, higher, all[i])) break;
      if (!IsByFarLess(level, higher)) continue;
      Lateness at_higher;
      FindStretch(rank, higher, at_higher);
      if (at_higher.since_step.has_value()) l.since_step = at_higher.since_step;
    }
  }
  return out;
}

}  // namespace gpuprobe::analysis
