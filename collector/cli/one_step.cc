#include "collector/cli/one_step.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "collector/analysis/units.h"

namespace gpuprobe::cli {
namespace {

using analysis::Duration;
using CellRows = std::vector<std::vector<std::string>>;

constexpr size_t kMostRanks = 32;
constexpr size_t kMostChanges = 10;
constexpr double kWorthSaying = 0.01;  // of the step

// $0 is the step. The median is of the steps after the warm-up.
constexpr char kSteps[] = R"(
  WITH steady AS (SELECT DISTINCT step FROM step WHERE NOT warmup),
       ordered AS (SELECT mean_ns FROM step_times JOIN steady USING (step) ORDER BY mean_ns)
  SELECT (SELECT count(*) FROM step WHERE step = $0), (SELECT min(step) FROM step), (SELECT max(step) FROM step),
         (SELECT mean_ns FROM step_times WHERE step = $0),
         (SELECT mean_ns FROM ordered LIMIT 1 OFFSET (SELECT count(*) / 2 FROM ordered)),
         (SELECT max(warmup) FROM step WHERE step = $0), (SELECT max(incomplete) FROM step WHERE step = $0))";

constexpr char kRanks[] = R"(
  SELECT rank, pid, gpu, total_ns, compute_ns, exposed_comm_ns, copy_ns, idle_ns, waited_ns, caused_wait_ns
  FROM step LEFT JOIN step_waits USING (rank, step) WHERE step = $0
  ORDER BY coalesce(caused_wait_ns, 0) DESC, total_ns DESC)";

// What each rank did in the step, and in the mean of its other steps after the warm-up. Waiting in
// collectives is no work of the rank's own.
constexpr char kChanges[] = R"(
  WITH steady AS (SELECT rank, pid, step FROM step WHERE NOT warmup AND NOT incomplete AND step <> $0),
       counted AS (SELECT rank, pid, count(DISTINCT step) AS steps FROM steady GROUP BY rank, pid),
       work AS (
         SELECT rank, pid, step, 'kernel ' || name AS what, end_ns - start_ns AS ns FROM kernel
           WHERE class <> 'collective'
         UNION ALL SELECT rank, pid, step, 'copy ' || direction, end_ns - start_ns FROM memcpy
         UNION ALL SELECT w.rank, s.pid, w.step, 'transfer ' || op, w.end_ns - w.start_ns - w.waited_ns
           FROM collective_waits AS w JOIN step AS s ON s.rank = w.rank AND s.step = w.step
         UNION ALL SELECT rank, pid, step, 'idle: launches too slowly', host_bound_ns FROM step
         UNION ALL SELECT rank, pid, step, 'idle: input', input_wait_ns FROM step
         UNION ALL SELECT rank, pid, step, 'idle: synchronising calls', sync_ns FROM step
         UNION ALL SELECT rank, pid, step, 'idle: memory calls', memory_ns FROM step
         UNION ALL SELECT rank, pid, step, 'idle: launches nothing', pause_ns FROM step
         UNION ALL SELECT rank, pid, step, 'idle: launch gaps', launch_gap_ns FROM step),
       here AS (SELECT rank, pid, what, sum(ns) AS ns FROM work WHERE step = $0 GROUP BY rank, pid, what),
       others AS (SELECT rank, pid, what, sum(ns) AS ns FROM work JOIN steady USING (rank, pid, step)
                  GROUP BY rank, pid, what)
  SELECT rank, pid, what, here.ns, coalesce(1.0 * others.ns / counted.steps, 0) AS usual
  FROM here JOIN counted USING (rank, pid) LEFT JOIN others USING (rank, pid, what)
  WHERE here.ns - usual >= $1 ORDER BY here.ns - usual DESC)";

absl::StatusOr<CellRows> Ask(tables::Database& database, const std::string& sql) {
  CellRows rows;
  bool head = true;
  const absl::Status status = database.Query(sql, [&](const tables::Database::Cells& cells) {
    if (std::exchange(head, false)) return;
    std::vector<std::string>& row = rows.emplace_back();
    for (const char* cell : cells) row.emplace_back(cell == nullptr ? "" : cell);
  });
  if (!status.ok()) return status;
  return rows;
}

double Number(const std::string& cell) {
  double value = 0;
  return absl::SimpleAtod(cell, &value) ? value : 0;
}

std::string TimeOr(const std::string& cell, const char* none) {
  return cell.empty() ? none : Duration(Number(cell));
}

std::string RankText(const std::string& rank, const std::string& pid, const std::string& gpu) {
  return absl::StrCat(rank == "-1" ? absl::StrCat("pid ", pid) : rank,
                      gpu.empty() ? "" : absl::StrCat("/GPU ", gpu));
}

render::Table RanksTable(CellRows rows) {
  render::Table table{
      .id = "ranks",
      .title = "Ranks",
      .columns = {"rank", "total", "compute", "exposed comm", "copies", "idle", "waits", "makes others wait"},
      .left = std::vector<bool>(8, false),
      .rows = {},
      .note = ""};
  if (rows.size() > kMostRanks) {
    table.note = absl::StrCat("the ", kMostRanks, " of ", rows.size(),
                              " ranks that make the others wait most, or take longest");
    rows.resize(kMostRanks);
  }
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells.push_back(RankText(row[0], row[1], row[2]));
    for (size_t i = 3; i < 8; ++i) cells.push_back(Duration(Number(row[i])));
    cells.push_back(TimeOr(row[8], "-"));
    cells.push_back(TimeOr(row[9], "-"));
  }
  return table;
}

// What several ranks have in common is one change.
struct Change {
  std::string what;
  std::vector<std::string> ranks;
  double here_ns = 0;  // sums over the ranks
  double usual_ns = 0;

  double by_ns() const { return (here_ns - usual_ns) / static_cast<double>(ranks.size()); }
};

std::vector<Change> ChangesOf(const CellRows& rows) {
  std::vector<Change> changes;
  for (const std::vector<std::string>& row : rows) {
    auto it =
        std::find_if(changes.begin(), changes.end(), [&](const Change& each) { return each.what == row[2]; });
    if (it == changes.end()) it = changes.insert(it, {.what = row[2], .ranks = {}});
    it->ranks.push_back(RankText(row[0], row[1], ""));
    it->here_ns += Number(row[3]);
    it->usual_ns += Number(row[4]);
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.by_ns() > b.by_ns(); });
  return changes;
}

// "5", "3, 5", "all 8", "7 of 8"
std::string WhoText(const std::vector<std::string>& ranks, size_t all) {
  constexpr size_t kMostNamed = 4;
  if (ranks.size() == all && all > 1) return absl::StrCat("all ", all);
  return ranks.size() <= kMostNamed ? absl::StrJoin(ranks, ", ") : absl::StrCat(ranks.size(), " of ", all);
}

// Kernels by names that tell them apart, as in the report.
std::vector<std::string> NamesOf(const std::vector<Change>& changes) {
  constexpr std::string_view kKernel = "kernel ";
  constexpr size_t kNameWidth = 44;
  std::vector<std::string> names;
  std::vector<std::string> kernels;
  for (const Change& change : changes) {
    names.push_back(change.what);
    if (change.what.starts_with(kKernel)) kernels.push_back(change.what.substr(kKernel.size()));
  }
  kernels = analysis::KernelNames(kernels, kNameWidth);
  auto next = kernels.begin();
  for (std::string& name : names) {
    if (name.starts_with(kKernel)) name = std::string(kKernel) + *next++;
  }
  return names;
}

render::Table ChangesTable(const std::vector<Change>& changes, size_t ranks) {
  render::Table table{.id = "changes",
                      .title = "Longer than usual",
                      .columns = {"ranks", "longer than usual", "here", "usually", "by"},
                      .left = {true, true, false, false, false},
                      .rows = {},
                      .note = ""};
  if (changes.size() > kMostChanges)
    table.note = absl::StrCat("the first ", kMostChanges, " of ", changes.size());
  const std::vector<std::string> names = NamesOf(changes);
  for (size_t i = 0; i < std::min(changes.size(), kMostChanges); ++i) {
    const Change& change = changes[i];
    const auto of = static_cast<double>(change.ranks.size());
    table.rows.push_back({WhoText(change.ranks, ranks), names[i], Duration(change.here_ns / of),
                          Duration(change.usual_ns / of), absl::StrCat("+", Duration(change.by_ns()))});
  }
  return table;
}

}  // namespace

absl::StatusOr<std::string> OneStepText(tables::Database& database, const std::string& run, uint64_t step,
                                        const render::Layout& layout) {
  const absl::StatusOr<CellRows> steps = Ask(database, absl::Substitute(kSteps, step));
  if (!steps.ok()) return steps.status();
  const std::vector<std::string>& of = steps->front();
  if (of[1].empty()) return absl::NotFoundError("no step was found in this run: gpuprobe report says why");
  if (of[0] == "0")
    return absl::NotFoundError(
        absl::StrCat("no step ", step, " is kept: they go from ", of[1], " to ", of[2]));
  const double mean_ns = Number(of[3]);
  const absl::StatusOr<CellRows> ranks = Ask(database, absl::Substitute(kRanks, step));
  if (!ranks.ok()) return ranks.status();
  const absl::StatusOr<CellRows> changes =
      Ask(database,
          absl::Substitute(kChanges, step, static_cast<uint64_t>(std::max(kWorthSaying * mean_ns, 1.0))));
  if (!changes.ok()) return changes.status();

  std::string first = absl::StrCat("Step ", step, " of ", run, " takes ", Duration(mean_ns));
  if (ranks->size() > 1) absl::StrAppend(&first, ", the mean of ", ranks->size(), " ranks");
  if (!of[4].empty()) absl::StrAppend(&first, "; the median step takes ", Duration(Number(of[4])));
  absl::StrAppend(&first, ".");
  if (of[5] == "1") absl::StrAppend(&first, " It belongs to the warm-up, and is in no statistics.");
  if (of[6] == "1") absl::StrAppend(&first, " Records of it were lost: what follows is estimated.");
  std::string text = absl::StrCat(layout.Wrap("", "", first), "\n", layout.Lay(RanksTable(*ranks)), "\n");
  if (changes->empty()) {
    absl::StrAppend(&text, layout.Wrap("", "",
                                       "Nothing that a rank did took longer than in the mean of its other "
                                       "steps, by 1 % of the step or more."));
  } else {
    absl::StrAppend(
        &text, layout.Lay(ChangesTable(ChangesOf(*changes), ranks->size())),
        layout.Wrap("", "",
                    "Means of the ranks named, against their other steps after the warm-up; by 1 % "
                    "of the step or more. Waiting for other ranks is not counted."));
  }
  return text;
}

}  // namespace gpuprobe::cli
