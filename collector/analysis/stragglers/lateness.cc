#include "collector/analysis/stragglers/lateness.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "collector/analysis/distributions.h"
#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

using model::LateSteps;

// Late steps below a higher level are of another kind than those at it if they are late by so much less: else
// its lateness is about that level, and crosses it by chance.
constexpr double kByFarLess = 0.5;
constexpr double kNearlyAll = 0.8;  // of the time by which it was late

// By how much the steps in which it was late are longer than the others.
std::optional<double> TheseStepsLonger(const LateSteps::Level& level, const Lateness& lateness) {
  if (level.other_steps_ns.count() < thresholds::kOnTimeSteps ||
      lateness.share() > thresholds::kComparedLateStepsShare)
    return std::nullopt;
  return static_cast<double>(level.late_total_ns) / static_cast<double>(level.late) -
         level.other_steps_ns.Summarize().p50;
}

// How much longer it makes a step, as the mean over the steps in which it was late.
double LongerBy(const LateSteps::Level& level, const Lateness& lateness) {
  double longer_ns =
      std::min(lateness.late_by_ns, TheseStepsLonger(level, lateness).value_or(lateness.late_by_ns));
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

// The chance that its late steps come at equal distances if they do, otherwise 1. Two steps set the distance;
// each further one would be at the right step, or beside it, by the chance of three in all steps.
double ChanceOfPattern(const LateSteps::Rank& rank, const LateSteps::Level& level) {
  constexpr uint64_t kFree = 2;
  constexpr double kNearEnough = 3;
  if (level.late <= kFree || level.history.steps().size() != level.late) return 1;
  const std::optional<StepPattern> pattern = StepPatternOf(level.history.steps());
  if (!pattern.has_value() || pattern->length != 1) return 1;
  return std::pow(std::min(kNearEnough / static_cast<double>(rank.steps), 1.0),
                  static_cast<double>(level.late - kFree));
}

bool ByChance(const LateSteps::Rank& rank, const LateSteps::Level& level, const All& all) {
  // Half an event more: a rate of which no event was seen is not zero (Jeffreys).
  const double others = static_cast<double>(all.ranks) - 1;
  const double rate =
      (static_cast<double>(all.late - level.late) + 0.5) / (static_cast<double>(all.steps - rank.steps) + 1);
  // Where one rank is late at a time, the others are late in the steps that it leaves them.
  const double left =
      (static_cast<double>(level.others_late) + 0.5) / (static_cast<double>(rank.steps - level.late) + 1);
  const double share = left / (others + left);
  const double one = ChanceOfAtLeast(level.late, rank.steps, std::min(std::max(rate, share), 1.0)) *
                     ChanceOfPattern(rank, level);
  return one * static_cast<double>(all.ranks * LateSteps::kLevels) > thresholds::kLatePValue;
}

// Whether its late steps below the higher level are late by far less than those at it.
bool IsByFarLess(const LateSteps::Level& level, const LateSteps::Level& higher) {
  const auto below = static_cast<double>(level.late - higher.late);
  const auto below_ns = static_cast<double>(level.late_by_ns - higher.late_by_ns);
  const double higher_ns = static_cast<double>(higher.late_by_ns) / static_cast<double>(higher.late);
  return below_ns <= kByFarLess * higher_ns * below;
}

// The level of the steps that hold nearly all of its lateness, where it is far later in them than in the
// rest.
size_t LevelOf(const LateSteps::Rank& rank, size_t lowest, const std::array<All, LateSteps::kLevels>& all) {
  size_t level = lowest;
  for (size_t i = lowest + 1; i < LateSteps::kLevels; ++i) {
    const LateSteps::Level& higher = rank.levels[i];
    if (higher.late == 0 || ByChance(rank, higher, all[i])) break;
    if (static_cast<double>(higher.late_by_ns) >=
            kNearlyAll * static_cast<double>(rank.levels[lowest].late_by_ns) &&
        IsByFarLess(rank.levels[lowest], higher))
      level = i;
  }
  return level;
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

// What follows from the steps in which it was late at its level, of which there are some.
void Conclude(const LateSteps::Rank& rank, Lateness& l) {
  const LateSteps::Level& level = rank.levels[l.level];
  l.late = level.late;
  l.late_by_ns = static_cast<double>(level.late_by_ns) / static_cast<double>(level.late);
  l.longer_by_ns = LongerBy(level, l);
  l.these_steps_longer_ns = std::max(TheseStepsLonger(level, l).value_or(0), 0.0);
  l.late_steps = level.history.steps();
  l.pattern = StepPatternOf(l.late_steps);
  FindStretch(rank, level, l);
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
    if (!l.by_chance) l.level = LevelOf(rank, l.level, all);
    if (rank.levels[l.level].late == 0) continue;
    Conclude(rank, l);
    // At a higher level, the small lateness that it shared with the others before does not count.
    const LateSteps::Level& lowest = rank.levels[l.level];
    for (size_t i = l.level + 1; i < LateSteps::kLevels && !l.by_chance && !l.since_step.has_value(); ++i) {
      const LateSteps::Level& higher = rank.levels[i];
      if (higher.late == 0 || ByChance(rank, higher, all[i])) break;
      if (!IsByFarLess(lowest, higher)) continue;
      Lateness at_higher;
      at_higher.steps = l.steps;
      at_higher.level = i;
      at_higher.by_chance = false;
      Conclude(rank, at_higher);
      if (at_higher.since_step.has_value()) l = std::move(at_higher);
    }
  }
  return out;
}

}  // namespace gpuprobe::analysis
