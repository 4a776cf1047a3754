#include "collector/analysis/comparison/comparison.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/comparison/comparison_changes.h"
#include "collector/analysis/comparison/comparison_work.h"
#include "collector/analysis/distributions.h"
#include "collector/analysis/level_change.h"
#include "collector/analysis/median.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

struct Part {
  const char* name;
  model::StepPart part;
  // Parts that depend on the rank alone. The rest also depends on the others.
  bool own;
};

// In the order of StepPart.
constexpr Part kParts[] = {
    {"total", model::StepPart::kTotal, false},
    {"compute", model::StepPart::kCompute, true},
    {"exposed comm", model::StepPart::kExposedComm, false},
    {"overlapped comm", model::StepPart::kOverlappedComm, false},
    {"copy", model::StepPart::kCopy, true},
    {"idle", model::StepPart::kIdle, false},
    {"idle: host-bound", model::StepPart::kHostBound, true},
    {"idle: input", model::StepPart::kInput, true},
    {"idle: sync", model::StepPart::kSync, true},
    {"idle: memory calls", model::StepPart::kMemory, true},
    {"idle: pauses", model::StepPart::kPause, true},
    {"idle: launch gaps", model::StepPart::kLaunchGap, true},
};

static_assert(std::size(kParts) == model::kStepParts);

const Series& SeriesOfRank(const RankSeries& rank, const Part& part) {
  return rank.parts[static_cast<size_t>(part.part)];
}

Series MeanOverRanks(const RunSeries& run, const Part& part) {
  std::vector<const Series*> all;
  for (const RankSeries& rank : run.ranks) all.push_back(&SeriesOfRank(rank, part));
  return MeanOf(all);
}

// Whether the lengths of steps of the same number go together, by the test of a correlation.
bool GoTogether(const Run& a, const Run& b) {
  if (a.series.block_steps != b.series.block_steps ||
      a.series.kernel_block_steps != b.series.kernel_block_steps)
    return false;
  const Series of_a = MeanOverRanks(a.series, kParts[0]);
  const Series of_b = MeanOverRanks(b.series, kParts[0]);
  Series x;
  Series y;
  for (size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i) {
    if (std::isnan(of_a[i]) || std::isnan(of_b[i])) continue;
    x.push_back(of_a[i]);
    y.push_back(of_b[i]);
  }
  if (x.size() < kLeastPairs) return false;
  const Sample sample_x = SampleOf(x);
  const Sample sample_y = SampleOf(y);
  double product = 0;
  double squares_x = 0;
  double squares_y = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    product += (x[i] - sample_x.mean) * (y[i] - sample_y.mean);
    squares_x += (x[i] - sample_x.mean) * (x[i] - sample_x.mean);
    squares_y += (y[i] - sample_y.mean) * (y[i] - sample_y.mean);
  }
  if (squares_x <= 0 || squares_y <= 0) return false;
  const double r = product / std::sqrt(squares_x * squares_y);
  const double degrees = static_cast<double>(x.size()) - 2;
  if (r >= 1) return true;
  const double t = r * std::sqrt(degrees / (1 - r * r));
  return ChanceAbove(t, degrees) < kPairedChance;
}

void Fill(const SeriesTest& t, Compared& out) {
  out.a = t.a;
  out.b = t.b;
  out.test = t.test;
}

std::vector<ComparedPart> PartsOf(const Run& a, const Run& b, bool paired) {
  std::vector<ComparedPart> parts;
  for (const Part& part : kParts) {
    ComparedPart& p = parts.emplace_back();
    p.part = part.part;
    Fill(TestOf(MeanOverRanks(a.series, part), MeanOverRanks(b.series, part), paired), p);
    p.a.count *= a.series.block_steps;
    p.b.count *= b.series.block_steps;
  }
  return parts;
}

// Each rank against itself; `odd_chances`: that it differs from the median of the ranks' changes by chance.
std::vector<ComparedRank> RanksOf(const Run& a, const Run& b, bool paired, std::vector<double>& odd_chances) {
  std::vector<ComparedRank> out;
  for (const Part& part : kParts) {
    if (!part.own) continue;
    const size_t first = out.size();
    std::vector<double> changes;
    for (size_t i = 0; i < a.series.ranks.size(); ++i) {
      ComparedRank& r = out.emplace_back();
      r.rank = a.series.ranks[i].rank;
      r.part = part.part;
      Fill(TestOf(SeriesOfRank(a.series.ranks[i], part), SeriesOfRank(b.series.ranks[i], part), paired), r);
      changes.push_back(r.b.mean - r.a.mean);
    }
    const double median = Median(changes);
    // The median of n ranks has pi / 2n of the variance of one of them.
    const double wider = std::sqrt(1 + std::numbers::pi / (2 * static_cast<double>(changes.size())));
    for (size_t i = first; i < out.size(); ++i) {
      ComparedRank& r = out[i];
      r.beyond_others_ns = changes[i - first] - median;
      if (!r.test.has_value() || r.beyond_others_ns == 0) {
        odd_chances.push_back(1);
        continue;
      }
      const double reach = (r.test->high - r.test->low) / 2;
      if (reach <= 0) {
        odd_chances.push_back(0);
        continue;
      }
      const double error = reach / Reach95(r.test->degrees) * wider;
      odd_chances.push_back(2 * ChanceAbove(std::abs(r.beyond_others_ns) / error, r.test->degrees));
    }
  }
  return out;
}

// Whether there was anything to compare: both runs may have none of it.
bool IsComparison(const Compared& c) {
  return c.test.has_value() && (c.a.mean != 0 || c.b.mean != 0 || c.a.std != 0 || c.b.std != 0);
}

// Adjusts all p-values together (Holm). Half of the error is for the first question, whether steps take
// longer: the more kernels a job has, the less could be said about it otherwise.
void Adjust(std::vector<double>& odd_chances, std::vector<ComparedRank>& ranks, Comparison& c) {
  std::vector<WeightedChance> chances;
  std::vector<double*> where;
  const auto add = [&](double p, double& adjusted) {
    chances.push_back({.p_value = p});
    where.push_back(&adjusted);
  };
  for (ComparedPart& p : c.parts) {
    if (IsComparison(p)) add(p.test->p_value, p.adjusted_p);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!IsComparison(ranks[i])) continue;
    add(ranks[i].test->p_value, ranks[i].adjusted_p);
    add(odd_chances[i], odd_chances[i]);
  }
  for (auto* work : {&c.kernels, &c.collectives}) {
    for (ComparedWork& w : *work) add(w.p_value, w.adjusted_p);
  }
  if (c.per_step && IsComparison(c.parts.front()) && chances.size() > 1)
    chances.front().weight = static_cast<double>(chances.size() - 1);
  const std::vector<double> adjusted = HolmAdjusted(chances);
  for (size_t i = 0; i < where.size(); ++i) *where[i] = adjusted[i];
  c.comparisons = chances.size();
  for (ComparedPart& p : c.parts) p.significant = p.adjusted_p < kSignificance;
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].significant = ranks[i].adjusted_p < kSignificance;
    ranks[i].odd = odd_chances[i] < kSignificance;
  }
}

std::string EffectName(double effect_size) {
  // J. Cohen, Statistical Power Analysis for the Behavioral Sciences (1988).
  const double d = std::abs(effect_size);
  return d < 0.2 ? "negligible" : d < 0.5 ? "small" : d < 0.8 ? "medium" : "large";
}

std::string VerdictOf(const Comparison& c) {
  if (!c.per_step)
    return "At least one run has no steps, so step times cannot be compared; the rest compares whole runs.";
  const ComparedPart& total = c.parts.front();
  if (!total.test.has_value())
    return "Too few steps to distinguish a change from chance: each run needs at least two after the "
           "warm-up.";
  const WelchResult& w = *total.test;
  const bool small = std::abs(w.difference) < kSmallChange * total.a.mean;
  const auto percent = [&](double ns) {
    return absl::StrFormat("%+.*f", small ? 2 : 1, ns / total.a.mean * 100);
  };
  const std::string interval = absl::StrCat("95 % interval ", percent(w.low), " to ", percent(w.high), " %");
  const std::string p = ChanceText(total.adjusted_p);
  const auto [before, after] = Durations(total.a.mean, total.b.mean);
  const std::string change =
      absl::StrCat(before, " -> ", after, ", ", percent(w.difference), " % (", interval, ", ", p);
  if (!total.significant) return absl::StrCat("No significant difference in step time: ", change, ").");
  // As regular as the steps of some jobs are, any difference is large for their spread.
  const char* const direction = w.difference < 0 ? "faster" : "slower";
  if (small)
    return absl::StrCat("B is ", direction, ", but only by ",
                        absl::StrFormat("%.2g %%", std::abs(w.difference) / total.a.mean * 100),
                        ": step time ", change, ").");
  return absl::StrCat("B is ", direction, ": step time ", change,
                      absl::StrFormat(", effect size %.1f, ", w.effect_size), EffectName(w.effect_size),
                      ").");
}

// Before the numbers, what speaks against them.
std::string DoubtText(const char* run, const std::vector<std::string>& doubts) {
  if (doubts.empty()) return "";
  return absl::StrCat(run, " ", absl::StrJoin(doubts, ", "), ". ");
}

// "Steps of A take 17.0 ms up to step 35, and 21.9 ms from step 36 on": a mean of both is neither. Empty:
// they have one level.
std::string LevelsOf(const char* name, const RunSeries& run) {
  std::vector<double> values;
  std::vector<uint64_t> steps;
  const Series total = MeanOverRanks(run, kParts[0]);
  for (size_t i = 0; i < total.size(); ++i) {
    if (std::isnan(total[i])) continue;
    values.push_back(total[i]);
    steps.push_back(i * run.block_steps);
  }
  const std::optional<LevelChange> change = LevelChangeOf(values, thresholds::kStepLevelRatio);
  if (!change.has_value()) return "";
  const uint64_t from = steps[change->place];
  const char* about = run.block_steps > 1 ? "about " : "";  // it may have changed within a block
  return absl::StrCat("Steps of ", name, " take ", Duration(change->before), " up to ", about, "step ",
                      from - 1, ", and ", Duration(change->after), " from ", about, "step ", from, " on.");
}

// What the means hide: two levels in one run, or steps that depend on each other so much that even their
// spread is hardly known.
void SayLevels(const Run& a, const Run& b, const ComparedPart& total, std::vector<std::string>& out) {
  constexpr double kFew = 8;
  constexpr double kHalf = 0.5;
  for (const auto& [name, run, sample] : {std::tuple("A", &a, &total.a), std::tuple("B", &b, &total.b)}) {
    if (const std::string levels = LevelsOf(name, run->series); !levels.empty()) {
      out.push_back(absl::StrFormat("%s Its mean is of both: compare with each (%s takes %s).", levels,
                                    run == &a ? "B" : "A",
                                    Duration(run == &a ? total.b.mean : total.a.mean)));
      continue;
    }
    if (sample->effective <= 0 || sample->effective >= kFew ||
        sample->effective > kHalf * static_cast<double>(sample->count))
      continue;
    out.push_back(
        absl::StrFormat("Step times of %s drift: its %d steps are worth about %.0f independent ones. Small "
                        "differences may still be chance; record a longer run.",
                        name, sample->count, sample->effective));
  }
}

}  // namespace

const char* PartName(model::StepPart part) { return kParts[static_cast<size_t>(part)].name; }

Comparison Compare(const Run& a, const Run& b) {
  Comparison c;
  c.per_step = a.report.steps.has_value() && b.report.steps.has_value();
  std::vector<ComparedRank> ranks;
  std::vector<double> odd_chances;
  const bool same_ranks = c.per_step && HaveSameRanks(a, b);
  c.limits = LimitsOf(a, b);
  double step_ns = 0;
  if (c.per_step) {
    c.paired = GoTogether(a, b);
    c.block_steps = std::max(a.series.block_steps, b.series.block_steps);
    c.parts = PartsOf(a, b, c.paired);
    SayLevels(a, b, c.parts.front(), c.limits);
    step_ns = std::max(c.parts.front().a.mean, c.parts.front().b.mean);
    if (same_ranks && a.series.ranks.size() > 1) ranks = RanksOf(a, b, c.paired, odd_chances);
  }
  c.kernels = KernelsCompared(a, b, c.per_step, c.paired);
  c.collectives = CollectivesCompared(a, b, c.per_step, same_ranks);
  Adjust(odd_chances, ranks, c);
  KeepChanged(step_ns, c.kernels);
  KeepChanged(step_ns, c.collectives);
  if (c.per_step) c.changes = ChangesOf(a, b, c, ranks, step_ns);
  std::erase_if(ranks, [](const ComparedRank& r) { return !r.significant; });
  std::stable_sort(ranks.begin(), ranks.end(), [](const ComparedRank& x, const ComparedRank& y) {
    return std::abs(x.test->difference) > std::abs(y.test->difference);
  });
  c.ranks = std::move(ranks);
  c.conditions = ConditionsOf(a.report.conditions, b.report.conditions);
  c.doubts_a = DoubtsOf(a.report);
  c.doubts_b = DoubtsOf(b.report);
  c.findings = FindingsOfOne(a.report, b.report);
  c.verdict =
      absl::StrCat(DoubtText("A", c.doubts_a), DoubtText("B", c.doubts_b),
                   c.doubts_a.empty() && c.doubts_b.empty() ? "" : "From the records: ", VerdictOf(c));
  return c;
}

}  // namespace gpuprobe::analysis
