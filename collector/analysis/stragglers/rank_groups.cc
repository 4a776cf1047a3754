#include "collector/analysis/stragglers/rank_groups.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/thresholds.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

struct Own {
  const RankReport* rank = nullptr;
  double ns = 0;
};

double OwnNs(const RankReport& rank) { return rank.step_means.total_ns - rank.step_means.exposed_comm_ns; }

template <typename Get>
double Mean(std::span<const Own> group, Get get) {
  double sum = 0;
  for (const Own& own : group) sum += get(*own.rank);
  return sum / static_cast<double>(group.size());
}

std::vector<int> Ranks(std::span<const Own> group) {
  std::vector<int> ranks;
  for (const Own& own : group) ranks.push_back(*own.rank->rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

std::optional<RankGroups> RankGroupsOf(const Report& report) {
  // Stages of a pipeline differ by design.
  if (report.communication.pipeline.has_value()) return std::nullopt;
  std::vector<Own> all;
  for (const RankReport& rank : report.ranks) {
    if (rank.rank.has_value() && rank.step_means.steps > 0) all.push_back({&rank, OwnNs(rank)});
  }
  const size_t least =
      std::max(thresholds::kGroupRanks, (all.size() + thresholds::kGroupOneIn - 1) / thresholds::kGroupOneIn);
  if (all.size() != report.ranks.size() || all.size() < 2 * least) return std::nullopt;
  std::sort(all.begin(), all.end(), [](const Own& a, const Own& b) { return a.ns < b.ns; });
  size_t split = 0;
  double widest_ns = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    const double gap_ns = all[i].ns - all[i - 1].ns;
    if (gap_ns <= widest_ns) continue;
    widest_ns = gap_ns;
    split = i;
  }
  if (split < least || all.size() - split < least) return std::nullopt;
  const auto faster = std::span<const Own>(all).first(split);
  const auto slower = std::span<const Own>(all).subspan(split);
  const double within_ns =
      std::max(faster.back().ns - faster.front().ns, slower.back().ns - slower.front().ns);
  if (widest_ns < thresholds::kGroupsApartShare * slower.front().ns ||
      widest_ns < thresholds::kGroupsApartRatio * within_ns)
    return std::nullopt;
  RankGroups groups{.slower = Ranks(slower), .faster = Ranks(faster)};
  groups.slower_ns = Mean(slower, OwnNs);
  groups.faster_ns = Mean(faster, OwnNs);
  struct GroupPart {
    RankGroups::Why why;
    const char* name;
    double (*get)(const RankReport&);
  };
  const std::array<GroupPart, 4> parts{{
      {RankGroups::Why::kCompute, "compute", [](const RankReport& r) { return r.step_means.compute_ns; }},
      {RankGroups::Why::kHost, "late launches and synchronisation",
       [](const RankReport& r) { return r.step_means.host_ns(); }},
      {RankGroups::Why::kInput, "waiting for input",
       [](const RankReport& r) { return r.step_means.input_ns; }},
      {RankGroups::Why::kCopies, "copies", [](const RankReport& r) { return r.step_means.copy_ns; }},
  }};
  double most_ns = 0;
  for (const auto& [why, name, get] : parts) {
    const double differs_ns = Mean(slower, get) - Mean(faster, get);
    if (differs_ns <= most_ns) continue;
    most_ns = differs_ns;
    groups.why = why;
    groups.part = name;
    groups.slower_part_ns = Mean(slower, get);
    groups.faster_part_ns = Mean(faster, get);
  }
  if (most_ns < thresholds::kGroupsExplainedShare * (groups.slower_ns - groups.faster_ns))
    return std::nullopt;
  const auto exposed = [](const RankReport& r) { return r.step_means.exposed_comm_ns; };
  groups.lost_ns = std::max(Mean(faster, exposed) - Mean(slower, exposed), 0.0);
  return groups;
}

std::optional<RankGroups> RankGroupsThatWait(const Report& report) {
  std::optional<RankGroups> groups = RankGroupsOf(report);
  if (!groups.has_value()) return std::nullopt;
  const double step_ns = report.communication.step_ns;
  // Hosts had no CPU for as long.
  const bool by_chance = groups->why == RankGroups::Why::kHost &&
                         CpuWaitOfBusyMachine(HostLoadsOf(report)) * step_ns >= groups->lost_ns;
  if (by_chance || groups->lost_ns < thresholds::kWaitedStepShare * step_ns) return std::nullopt;
  return groups;
}

}  // namespace gpuprobe::analysis
