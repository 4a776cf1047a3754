#include "collector/page/chosen_steps.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"

namespace gpuprobe::page {
namespace {

using analysis::FindingSubject;

// Mean over the ranks of a column's step time; 0 where no rank has steps.
std::vector<double> Lengths(const StepGrid& grid) {
  std::vector<double> lengths(grid.columns);
  for (size_t column = 0; column < grid.columns; ++column) {
    size_t ranks = 0;
    for (const auto& row : grid.rows) {
      if (row.empty() || row[column].steps == 0) continue;
      lengths[column] += row[column].total_ns;
      ++ranks;
    }
    if (ranks > 0) lengths[column] /= static_cast<double>(ranks);
  }
  return lengths;
}

// Columns after the warm-up that have steps, the shortest first.
std::vector<size_t> ByLength(const StepGrid& grid, const std::vector<double>& lengths, uint64_t warmup) {
  std::vector<size_t> columns;
  for (size_t column = 0; column < grid.columns; ++column) {
    if (lengths[column] > 0 && column * grid.steps_per_column >= warmup) columns.push_back(column);
  }
  std::sort(columns.begin(), columns.end(),
            [&](size_t a, size_t b) { return std::pair(lengths[a], a) < std::pair(lengths[b], b); });
  return columns;
}

class Chooser {
 public:
  Chooser(const model::JobModel& job, const analysis::Report& report, const StepGrid& grid)
      : job_(job), report_(report), grid_(grid), lengths_(Lengths(grid)) {
    const uint64_t warmup = report.steps.has_value() ? report.steps->warmup_count : 0;
    by_length_ = ByLength(grid, lengths_, warmup);
    if (by_length_.empty()) by_length_ = ByLength(grid, lengths_, 0);
  }

  std::vector<ChosenStep> Choose(std::span<const uint64_t> wanted) {
    if (by_length_.empty()) return {};
    const size_t median = by_length_[by_length_.size() / 2];
    At(by_length_.back()).slowest = true;
    At(median).median = true;
    for (size_t i = 0; i < report_.findings.size(); ++i) {
      const bool hangs = absl::StartsWith(report_.findings[i].id, "hang-");
      const size_t column = hangs ? Last() : ColumnOf(report_.findings[i].about).value_or(median);
      if (chosen_.size() >= kMostTimelines && !chosen_.contains(column)) continue;
      At(column).findings.push_back(i);
    }
    for (const uint64_t step : wanted) {
      if (const std::optional<size_t> column = Column(step); column.has_value() && lengths_[*column] > 0)
        At(*column);
    }
    std::vector<ChosenStep> steps;
    for (const auto& [column, step] : chosen_) steps.push_back(step);
    return steps;
  }

 private:
  ChosenStep& At(size_t column) {
    ChosenStep& step = chosen_[column];
    step.column = column;
    return step;
  }

  // With steps: a hang comes after it.
  size_t Last() const { return *std::max_element(by_length_.begin(), by_length_.end()); }

  std::optional<size_t> Column(uint64_t step) const {
    if (step < grid_.first_step) return std::nullopt;
    const uint64_t column = (step - grid_.first_step) / grid_.steps_per_column;
    return column < grid_.columns ? std::optional(static_cast<size_t>(column)) : std::nullopt;
  }

  // The longest of the steps that it names; else a usual one of those in which its ranks were waited for.
  std::optional<size_t> ColumnOf(const FindingSubject& about) const {
    std::optional<size_t> longest;
    for (const uint64_t step : about.steps) {
      const std::optional<size_t> column = Column(step);
      if (column.has_value() && (!longest.has_value() || lengths_[*column] > lengths_[*longest]))
        longest = column;
    }
    if (longest.has_value()) return longest;
    std::vector<std::pair<double, size_t>> waited;
    for (const size_t column : by_length_) {
      const uint64_t step = grid_.first_step + column * grid_.steps_per_column;
      if (step < about.first_step.value_or(0) || step > about.last_step.value_or(UINT64_MAX)) continue;
      double caused_ns = 0;
      for (const int rank : about.ranks) {
        const std::optional<size_t> member = MemberOf(job_, rank);
        if (member.has_value() && !grid_.rows[*member].empty())
          caused_ns += grid_.rows[*member][column].caused_wait_ns;
      }
      if (caused_ns > 0) waited.emplace_back(caused_ns, column);
    }
    if (waited.empty()) return std::nullopt;
    // Above the median: where a rank is late now and then, most steps show little.
    constexpr double kQuantile = 0.75;
    const auto usual =
        waited.begin() + static_cast<ptrdiff_t>(kQuantile * static_cast<double>(waited.size()));
    std::nth_element(waited.begin(), usual, waited.end());
    return usual->second;
  }

  const model::JobModel& job_;
  const analysis::Report& report_;
  const StepGrid& grid_;
  std::vector<double> lengths_;
  std::vector<size_t> by_length_;
  std::map<size_t, ChosenStep> chosen_;
};

}  // namespace

std::optional<size_t> MemberOf(const model::JobModel& job, int rank) {
  for (size_t i = 0; i < job.members().size(); ++i) {
    const v1::Identity& identity = job.members()[i].process->identity();
    if (identity.rank_source() != v1::RANK_SOURCE_NONE && identity.rank() == rank) return i;
  }
  return std::nullopt;
}

std::vector<ChosenStep> ChooseSteps(const model::JobModel& job, const analysis::Report& report,
                                    const StepGrid& grid, std::span<const uint64_t> wanted) {
  return Chooser(job, report, grid).Choose(wanted);
}

std::vector<size_t> ChooseMembers(const model::JobModel& job, const analysis::Report& report,
                                  const StepGrid& grid) {
  const size_t all = job.members().size();
  std::set<size_t> chosen;
  const auto add = [&](size_t member) {
    if (chosen.size() < kMostTimelineRanks) chosen.insert(member);
  };
  if (all > kMostTimelineRanks) {
    for (const analysis::Finding& finding : report.findings) {
      for (const int rank : finding.about.ranks) {
        const std::optional<size_t> member = MemberOf(job, rank);
        if (!member.has_value()) continue;
        add(*member);
        // Neighbours share a host, and often a stage or a tensor group.
        if (*member > 0) add(*member - 1);
        if (*member + 1 < all) add(*member + 1);
        if (chosen.size() > kMostTimelineRanks / 2) break;
      }
    }
    const size_t stride = std::max<size_t>(1, all / (kMostTimelineRanks - chosen.size() + 1));
    for (size_t member = 0; member < all; member += stride) {
      if (!grid.rows[member].empty()) add(member);
    }
  }
  for (size_t member = 0; member < all; ++member) add(member);
  return {chosen.begin(), chosen.end()};
}

}  // namespace gpuprobe::page
