#include "collector/analysis/lateness.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>

namespace gpuprobe::analysis {
namespace {

using model::LateSteps;

// A stretch holds so much of all late steps.
constexpr double kMostOfIt = 0.8;
// A rank that is late from some step on is so in this share of them, and in one of the last kLastSteps.
constexpr double kMostSince = 0.6;
constexpr uint64_t kLastSteps = 3;

// By which a step with it is longer, mean over the steps in which it was late.
double LongerBy(const LateSteps::Rank& rank, const Lateness& lateness) {
  const auto late = static_cast<double>(rank.late);
  double longer_ns = lateness.late_by_ns;
  if (rank.other_steps_ns.count() >= kLeastOtherSteps && lateness.share() <= kMostCompared)
    longer_ns = std::min(
        longer_ns, static_cast<double>(rank.late_total_ns) / late - rank.other_steps_ns.Summarize().p50);
  if (rank.longer_known == 0) return 0;
  longer_ns =
      std::min(longer_ns, static_cast<double>(rank.longer_by_ns) / static_cast<double>(rank.longer_known));
  return std::max(longer_ns, 0.0);
}

}  // namespace

std::vector<Lateness> LatenessOf(const std::vector<LateSteps::Rank>& ranks) {
  uint64_t all_steps = 0;
  uint64_t all_late = 0;
  size_t compared = 0;
  for (const LateSteps::Rank& rank : ranks) {
    all_steps += rank.steps;
    all_late += rank.late;
    compared += rank.steps > 0 ? 1 : 0;
  }
  std::vector<Lateness> out;
  for (const LateSteps::Rank& rank : ranks) {
    Lateness& l = out.emplace_back();
    l.steps = rank.steps;
    l.late = rank.late;
    if (rank.late == 0) continue;
    l.late_by_ns = static_cast<double>(rank.late_by_ns) / static_cast<double>(rank.late);
    l.longer_by_ns = LongerBy(rank, l);
    // Half an event more: a rate of which no event was seen is not zero (Jeffreys).
    const double others = static_cast<double>(compared) - 1;
    const double rate =
        (static_cast<double>(all_late - rank.late) + 0.5) / (static_cast<double>(all_steps - rank.steps) + 1);
    // Where one rank is late at a time, the others are late in the steps that it leaves them.
    const double left =
        (static_cast<double>(rank.others_late) + 0.5) / (static_cast<double>(rank.steps - rank.late) + 1);
    const double share = left / (others + left);
    const boost::math::binomial chance(static_cast<double>(rank.steps), std::min(std::max(rate, share), 1.0));
    const double one = boost::math::cdf(boost::math::complement(chance, static_cast<double>(rank.late) - 1));
    l.by_chance = one * static_cast<double>(compared) > kByChance;
    const model::StepHistory::Stretch stretch = rank.history.Densest();
    if (static_cast<double>(stretch.count) >= kMostOfIt * static_cast<double>(rank.late))
      l.stretch = {stretch.first, stretch.last};
    const uint64_t length = stretch.last - stretch.first + 1;
    if (l.stretch.has_value() && stretch.count >= kLeastSince && rank.steps >= length + kLeastBefore &&
        static_cast<double>(stretch.count) >= kMostSince * static_cast<double>(length) &&
        stretch.last + kLastSteps > rank.last_step) {
      l.since_step = stretch.first;
    }
  }
  return out;
}

}  // namespace gpuprobe::analysis
