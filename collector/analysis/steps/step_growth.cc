#include "collector/analysis/steps/step_growth.h"

#include <algorithm>
#include <numeric>

#include "collector/analysis/median.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/trend.h"
#include "collector/analysis/work/kernel_class.h"
#include "collector/model/job/job_model.h"
#include "collector/records/collective_kernels.h"

namespace gpuprobe::analysis {
namespace {

using model::StepPart;

// Those that make up the step, but for what one part hides of another.
constexpr std::array kPartsOfStep = {StepPart::kCompute,   StepPart::kExposedComm, StepPart::kCopy,
                                     StepPart::kHostBound, StepPart::kInput,       StepPart::kSync,
                                     StepPart::kMemory,    StepPart::kPause,       StepPart::kLaunchGap};

struct Windows {
  std::vector<double> typical;  // a median each
  double spread = 0;            // between the least and the greatest value of a window, in most of them
};

Windows WindowsOf(const std::vector<double>& values) {
  const size_t group = values.size() / thresholds::kGrowthWindows;
  Windows windows;
  if (group == 0) return windows;
  std::vector<double> spreads;
  // They end with the last value.
  for (size_t end = values.size() - (thresholds::kGrowthWindows - 1) * group; end <= values.size();
       end += group) {
    const std::vector<double> window(values.begin() + static_cast<ptrdiff_t>(end - group),
                                     values.begin() + static_cast<ptrdiff_t>(end));
    const auto [least, greatest] = std::minmax_element(window.begin(), window.end());
    spreads.push_back(*greatest - *least);
    windows.typical.push_back(Median(window));
  }
  windows.spread = Median(spreads);
  return windows;
}

// A level until window `knee`, and a line from there on: what grows may be hidden behind the device's work at
// first.
struct Bend {
  size_t knee = 0;  // 0: a line
  GrowthLine line;
  double squares = 0;  // of the distances from it
};

double Risen(size_t window, size_t knee) { return window > knee ? static_cast<double>(window - knee) : 0; }

// By the median of the slopes of all pairs, as SlopeOf.
Bend BendThrough(const std::vector<double>& windows, size_t knee) {
  std::vector<double> slopes;
  for (size_t i = 0; i < windows.size(); ++i) {
    for (size_t j = std::max(i, knee) + 1; j < windows.size(); ++j)
      slopes.push_back((windows[j] - windows[i]) / (Risen(j, knee) - Risen(i, knee)));
  }
  const double slope = Median(std::move(slopes));
  std::vector<double> starts;
  for (size_t i = 0; i < windows.size(); ++i) starts.push_back(windows[i] - slope * Risen(i, knee));
  const double first = Median(std::move(starts));
  Bend bend{.knee = knee, .line = {.first = first, .last = first + slope * Risen(windows.size() - 1, knee)}};
  for (size_t i = 0; i < windows.size(); ++i) {
    const double off = windows[i] - first - slope * Risen(i, knee);
    bend.squares += off * off;
  }
  return bend;
}

// The one that describes the windows best, rising for half of them or more.
Bend BestBend(const std::vector<double>& windows) {
  Bend best = BendThrough(windows, 0);
  for (size_t knee = 1; knee <= windows.size() / 2; ++knee) {
    const Bend bend = BendThrough(windows, knee);
    if (bend.squares < best.squares) best = bend;
  }
  return best;
}

double SquaresAround(const std::vector<double>& values, size_t from, size_t to) {
  const auto begin = values.begin() + static_cast<ptrdiff_t>(from);
  const auto end = values.begin() + static_cast<ptrdiff_t>(to);
  const double mean = std::accumulate(begin, end, 0.0) / static_cast<double>(to - from);
  return std::accumulate(begin, end, 0.0,
                         [&](double sum, double v) { return sum + (v - mean) * (v - mean); });
}

// Whether two levels, with a jump between them, describe the values better than the bend.
bool IsJump(const std::vector<double>& values, const Bend& bend) {
  for (size_t at = 1; at < values.size(); ++at) {
    if (SquaresAround(values, 0, at) + SquaresAround(values, at, values.size()) <= bend.squares) return true;
  }
  return false;
}

// By how much a part grows, significant or not, from where the step begins to.
double GrowthOfPart(const StepPartSeries& rank, StepPart part, size_t knee) {
  const std::vector<double> windows = WindowsOf(rank.parts[static_cast<size_t>(part)]).typical;
  return windows.empty() ? 0 : BendThrough(windows, knee).line.growth();
}

std::vector<double> MeansOfBlocks(const std::vector<uint64_t>& sums, const std::vector<uint64_t>& counts) {
  std::vector<double> means;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    means.push_back((i < sums.size() ? static_cast<double>(sums[i]) : 0) / static_cast<double>(counts[i]));
  }
  return means;
}

StepPartSeries SeriesOfMember(const model::Member& member) {
  StepPartSeries series;
  const v1::Identity& id = member.process->identity();
  if (HasRank(id)) series.rank = id.rank();
  const model::StepBlocks& blocks = member.steps().blocks();
  const uint32_t shift = blocks.steps().shift();
  const std::vector<uint64_t> counts = blocks.steps().At(shift);
  for (size_t i = 0; i < model::kStepParts; ++i)
    series.parts[i] = MeansOfBlocks(blocks.Of(static_cast<StepPart>(i)).At(shift), counts);
  return series;
}

void AddKernel(const model::Member& member, StepGrowth& growth) {
  const model::StepWork& work = member.steps().work();
  const uint32_t shift = work.step_blocks().shift();
  std::vector<uint64_t> counts = work.step_blocks().At(shift);
  const uint64_t warmup = (member.steps().warmup_count() + (uint64_t{1} << shift) - 1) >> shift;
  std::fill_n(counts.begin(), std::min<size_t>(warmup, counts.size()), 0);
  member.ForEachKernel([&](const model::KernelTotals& kernel) {
    const model::StepWork::Blocks* blocks = work.BlocksOf(kernel.token);
    if (blocks == nullptr || model::Communicates(kernel.nature)) return;
    const std::vector<double> means = MeansOfBlocks(blocks->At(std::max(shift, blocks->shift())), counts);
    const size_t quarter = means.size() / 4;
    if (quarter == 0) return;
    const auto mean = [&](auto begin) {
      return std::accumulate(begin, begin + static_cast<ptrdiff_t>(quarter), 0.0) /
             static_cast<double>(quarter);
    };
    const GrowthLine line{.first = mean(means.begin()),
                          .last = mean(means.end() - static_cast<ptrdiff_t>(quarter))};
    if (line.growth() <= growth.kernel_ns.growth()) return;
    growth.kernel_ns = line;
    growth.kernel = Demangle(KernelName(*member.process, kernel));
  });
}

std::optional<Bend> RiseIn(const std::vector<double>& values) {
  if (values.size() < thresholds::kGrowthSteps) return std::nullopt;
  const auto [windows, spread] = WindowsOf(values);
  if (RisingScore(windows) < thresholds::kGrowthZScore) return std::nullopt;
  const Bend bend = BestBend(windows);
  const GrowthLine& line = bend.line;
  if (line.first <= 0 || line.growth() < std::max(thresholds::kGrowthShare * line.first, spread) ||
      IsJump(windows, bend))
    return std::nullopt;
  const std::vector<double> last(windows.end() - static_cast<ptrdiff_t>(windows.size() / 3 + 1),
                                 windows.end());
  if (SlopeOf(last) < thresholds::kStillRisingSlopeShare * SlopeOf(windows)) return std::nullopt;
  return bend;
}

}  // namespace

std::optional<GrowthLine> GrowthIn(const std::vector<double>& values) {
  const std::optional<Bend> bend = RiseIn(values);
  return bend.has_value() ? std::optional(bend->line) : std::nullopt;
}

std::optional<ChosenGrowth> GrowthOfSteps(const std::vector<StepPartSeries>& ranks) {
  std::optional<ChosenGrowth> chosen;
  std::vector<double> waits;  // by rank: growth of its exposed communication
  size_t growing = 0;
  size_t knee = 0;
  double least_wait_ns = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    waits.push_back(GrowthOfPart(ranks[i], StepPart::kExposedComm, 0));
    const std::vector<double>& total = ranks[i].parts[static_cast<size_t>(StepPart::kTotal)];
    const std::optional<Bend> bend = RiseIn(total);
    if (!bend.has_value()) continue;
    ++growing;
    if (chosen.has_value() && waits.back() >= least_wait_ns) continue;
    least_wait_ns = waits.back();
    chosen.emplace().series = i;
    chosen->growth.total_ns = bend->line;
    knee = bend->knee;
    chosen->growth.mean_ns =
        std::accumulate(total.begin(), total.end(), 0.0) / static_cast<double>(total.size());
  }
  if (!chosen.has_value() || 2 * growing < ranks.size()) return std::nullopt;
  StepGrowth& growth = chosen->growth;
  const double grown_ns = growth.total_ns.growth();
  for (const StepPart part : kPartsOfStep) {
    const double part_ns = GrowthOfPart(ranks[chosen->series], part, knee);
    if (part_ns >= thresholds::kGrowthNamedShare * grown_ns) growth.parts.push_back({part, part_ns});
  }
  std::stable_sort(growth.parts.begin(), growth.parts.end(),
                   [](const auto& a, const auto& b) { return a.growth_ns > b.growth_ns; });
  waits.erase(waits.begin() + static_cast<ptrdiff_t>(chosen->series));
  if (!waits.empty() && Median(waits) - least_wait_ns >= thresholds::kGrowthPartShare * grown_ns)
    growth.rank = ranks[chosen->series].rank;
  return chosen;
}

std::optional<StepGrowth> StepGrowthOf(const model::JobModel& job) {
  std::vector<StepPartSeries> ranks;
  std::vector<const model::Member*> members;
  const std::vector<model::Member> reported = job.ReportedMembers();
  for (const model::Member& member : reported) {
    if (member.steps().statistics().total_ns.count() == 0) continue;
    ranks.push_back(SeriesOfMember(member));
    members.push_back(&member);
  }
  std::optional<ChosenGrowth> chosen = GrowthOfSteps(ranks);
  if (!chosen.has_value()) return std::nullopt;
  StepGrowth& growth = chosen->growth;
  const model::Member& member = *members[chosen->series];
  growth.steps = member.steps().statistics().total_ns.count();
  if (!growth.parts.empty() && growth.parts.front().part == StepPart::kCompute) AddKernel(member, growth);
  return growth;
}

}  // namespace gpuprobe::analysis
