#include "collector/page/work_grid.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "collector/analysis/communication/collective_report.h"
#include "collector/analysis/names.h"
#include "collector/analysis/work/kernel_class.h"
#include "collector/model/steps/work_columns.h"

namespace gpuprobe::page {
namespace {

using model::WorkColumns;

// Fills one member's rows.
class RowFiller {
 public:
  RowFiller(const model::JobModel& job, size_t member, const StepGrid& grid, WorkGrid& out)
      : job_(job), member_(member), grid_(grid), out_(out), work_(Of(job, member).steps().work_columns()) {}

  static const model::Member& Of(const model::JobModel& job, size_t member) { return job.members()[member]; }

  std::vector<uint32_t> Steps() const {
    std::vector<uint32_t> steps(out_.columns);
    for (size_t i = 0; i < work_.steps().size(); ++i) steps[ColumnOf(i)] += work_.steps()[i];
    return steps;
  }

  void AddWork(uint32_t token, std::vector<WorkCell>& row) const {
    const std::span<const WorkColumns::Cell> cells = work_.Of(token);
    if (cells.empty()) return;
    row.resize(out_.columns);
    for (size_t i = 0; i < cells.size(); ++i) {
      WorkCell& cell = row[ColumnOf(i)];
      cell.calls += cells[i].calls;
      cell.time_ns += cells[i].time_ns;
    }
  }

  void AddPhases(uint32_t token, WorkColumns::Phases& into) const {
    const WorkColumns::Phases* phases = work_.PhasesOf(token);
    if (phases == nullptr) return;
    for (size_t i = 0; i < into.size(); ++i) {
      into[i].calls += (*phases)[i].calls;
      into[i].time_ns += (*phases)[i].time_ns;
    }
  }

  void AddTransfers(const model::TransferSlices& slices, std::vector<WorkCell>& row) {
    if (row.empty()) return;
    if (starts_.empty()) NoteStarts();
    for (size_t i = 0; i < slices.slices().size(); ++i) {
      const uint64_t begin_ns = slices.start_ns() + i * slices.width_ns();
      AddSlice(slices.slices()[i], begin_ns, begin_ns + slices.width_ns(), row);
    }
  }

 private:
  struct Start {
    uint64_t at_ns = 0;
    size_t column = 0;
  };

  size_t ColumnAt(uint64_t step) const {
    const uint64_t place = (step - std::min(step, grid_.first_step)) / out_.steps_per_column;
    return static_cast<size_t>(std::min<uint64_t>(place, out_.columns - 1));
  }
  size_t ColumnOf(size_t column) const {
    return ColumnAt(JobStep(job_, member_, work_.first() + (column << work_.shift())));
  }
  void AddSlice(const model::TransferSlices::Slice& slice, uint64_t begin_ns, uint64_t end_ns,
                std::vector<WorkCell>& row) const {
    auto next = std::upper_bound(starts_.begin(), starts_.end(), begin_ns,
                                 [](uint64_t time_ns, const Start& start) { return time_ns < start.at_ns; });
    if (next != starts_.begin()) --next;
    for (; next != starts_.end() && next->at_ns < end_ns; ++next) {
      const uint64_t from_ns = std::max(begin_ns, next->at_ns);
      const uint64_t to_ns =
          std::next(next) == starts_.end() ? end_ns : std::min(end_ns, std::next(next)->at_ns);
      const double part = static_cast<double>(to_ns - from_ns) / static_cast<double>(end_ns - begin_ns);
      row[next->column].transfers += slice.plans * part;
      row[next->column].transfer_ns += static_cast<double>(slice.transfer_ns) * part;
    }
  }
  // When the member's steps began, on its process's clock.
  void NoteStarts() {
    const std::vector<StepCell>& cells = grid_.rows[member_];
    for (size_t column = 0; column < cells.size(); ++column) {
      if (cells[column].steps == 0) continue;
      starts_.push_back({.at_ns = cells[column].start_ns,
                         .column = ColumnAt(grid_.first_step + column * grid_.steps_per_column)});
    }
  }

  const model::JobModel& job_;
  size_t member_;
  const StepGrid& grid_;
  WorkGrid& out_;
  const WorkColumns& work_;
  std::vector<Start> starts_;
};

// Which of the report's kernels and collectives is which in the processes.
class Places {
 public:
  explicit Places(const analysis::Report& report) {
    for (size_t i = 0; i < report.top_kernels.size(); ++i) kernels_[report.top_kernels[i].name] = i;
    for (size_t i = 0; i < report.collectives.size(); ++i)
      collectives_[analysis::KeyOf(report.collectives[i])] = i;
  }

  std::optional<size_t> OfKernel(const std::string& mangled) {
    const auto [known, added] = by_mangled_.try_emplace(mangled);
    if (added) {
      if (const auto found = kernels_.find(analysis::Demangle(mangled)); found != kernels_.end())
        known->second = found->second;
    }
    return known->second;
  }
  std::optional<size_t> OfSeries(const model::Member& member, const model::CollectiveSeries& series) const {
    const auto found = collectives_.find(analysis::KeyOf(member, series));
    return found == collectives_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  absl::flat_hash_map<std::string, size_t> kernels_;
  absl::flat_hash_map<std::string, std::optional<size_t>> by_mangled_;
  std::map<analysis::CollectiveKey, size_t> collectives_;
};

bool IsPart(const model::CollectiveSeries& series, uint32_t op) {
  return std::any_of(series.parts.begin(), series.parts.end(),
                     [&](const model::CollectivePart& part) { return part.op == op; });
}

// The tokens of the calls that the series counts.
std::vector<uint32_t> TokensOf(const model::Member& member, const model::CollectiveSeries& series) {
  std::vector<uint32_t> tokens;
  for (const auto& [token, name] : member.steps().communication().names()) {
    if (name.comm != series.comm || !IsPart(series, name.op)) continue;
    if (std::max(name.calls, 1U) != series.calls_per_plan || name.bytes != series.size_bytes) continue;
    tokens.push_back(token);
  }
  return tokens;
}

void FillRow(const model::JobModel& job, size_t member, size_t row, const StepGrid& grid, Places& places,
             WorkGrid& out) {
  RowFiller filler(job, member, grid, out);
  const model::Member& m = job.members()[member];
  out.steps[row] = filler.Steps();
  m.ForEachKernel([&](const model::KernelTotals& kernel) {
    if (kernel.token == 0) return;
    const std::optional<size_t> place = places.OfKernel(analysis::KernelName(*m.process, kernel));
    if (!place.has_value()) return;
    filler.AddWork(kernel.token, out.kernels[*place][row]);
    filler.AddPhases(kernel.token, out.phases[*place]);
  });
  m.ForEachSeries([&](const model::CollectiveSeries& series) {
    const std::optional<size_t> place = series.mixed_sizes ? std::nullopt : places.OfSeries(m, series);
    if (!place.has_value()) return;
    std::vector<WorkCell>& cells = out.collectives[*place][row];
    for (const uint32_t token : TokensOf(m, series)) filler.AddWork(token, cells);
    filler.AddTransfers(m.Compared(series).slices, cells);
  });
}

}  // namespace

WorkGrid WorkGridOf(const model::JobModel& job, const analysis::Report& report,
                    const std::vector<size_t>& members, const StepGrid& grid) {
  WorkGrid out;
  if (grid.columns == 0) return out;
  out.steps_per_column = grid.steps_per_column;
  for (const size_t member : members) {
    if (member < job.members().size())
      out.steps_per_column =
          std::max(out.steps_per_column, uint64_t{1} << job.members()[member].steps().work_columns().shift());
  }
  const size_t lines = (report.top_kernels.size() + report.collectives.size()) * members.size();
  const auto columns = [&] {
    return (grid.columns * grid.steps_per_column + out.steps_per_column - 1) / out.steps_per_column;
  };
  while (columns() > 1 && columns() * lines > WorkGrid::kMostCells) out.steps_per_column *= 2;
  out.columns = static_cast<size_t>(columns());
  out.steps.resize(members.size());
  out.kernels.assign(report.top_kernels.size(), WorkGrid::Rows(members.size()));
  out.phases.resize(report.top_kernels.size());
  out.collectives.assign(report.collectives.size(), WorkGrid::Rows(members.size()));
  Places places(report);
  for (size_t row = 0; row < members.size(); ++row) {
    if (members[row] < job.members().size()) FillRow(job, members[row], row, grid, places, out);
  }
  return out;
}

}  // namespace gpuprobe::page
