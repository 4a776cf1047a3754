#include "collector/page/page_data.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collector/analysis/finding_document.h"
#include "collector/analysis/finding_rules.h"
#include "collector/page/chosen_steps.h"
#include "collector/page/memory_levels.h"
#include "collector/page/packed_cells.h"
#include "collector/page/step_grid.h"
#include "collector/page/timelines.h"
#include "collector/page/work_grid.h"
#include "collector/report/words.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::page {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

// The member that each of the report's ranks is.
std::vector<size_t> MembersOf(const model::JobModel& job, const analysis::Report& report) {
  std::vector<size_t> members;
  std::set<size_t> taken;
  for (const analysis::RankReport& rank : report.ranks) {
    size_t number = 0;
    for (; number < job.members().size(); ++number) {
      const model::Member& member = job.members()[number];
      const v1::Identity& identity = member.process->identity();
      if (identity.pid() == rank.pid && identity.host() == rank.host && !taken.contains(number) &&
          (!rank.is_device || rank.device == member.device()))
        break;
    }
    taken.insert(number);
    members.push_back(number);
  }
  return members;
}

// Builds the document; `row` numbers are places in report.json's ranks[].
class Document {
 public:
  Document(const model::JobModel& job, const analysis::Report& report)
      : job_(job), report_(report), members_(MembersOf(job, report)), grid_(StepGridOf(job)) {}

  std::string Text(const store::RunFiles& files, std::span<const uint64_t> wanted) const {
    Json json = {{"schema_version", kSchemaVersion}, {"steps", Steps()}, {"work", Work()}};
    const Timelines timelines = TimelinesOf(job_, report_, grid_, files, wanted);
    json["names"] = timelines.names.names();
    json["timelines"] = Json::array();
    for (const Timeline& timeline : timelines.steps) json["timelines"].push_back(TimelineJson(timeline));
    json["memory"] = Memory();
    json["step_starts"] = StepStarts();
    json["pictures"] = Json::array();
    for (const analysis::Finding& finding : report_.findings)
      json["pictures"].push_back(analysis::RuleOf(finding.id).picture);
    json["documents"] = Json::object();
    for (const analysis::Finding& finding : report_.findings)
      json["documents"][finding.id] = std::string(analysis::FindingExplanation(finding.id));
    return text::SafeJson(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  std::string StepsText() const {
    const Json json = {{"steps", Steps()},
                       {"warmup", report_.steps.has_value() ? report_.steps->warmup_count : 0}};
    return text::SafeJson(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

 private:
  Json Steps() const {
    if (grid_.columns == 0) return nullptr;
    struct Value {
      const char* name;
      float StepCell::*member;
    };
    static constexpr Value kValues[] = {{"total_ns", &StepCell::total_ns},
                                        {"compute_ns", &StepCell::compute_ns},
                                        {"exposed_comm_ns", &StepCell::exposed_comm_ns},
                                        {"copy_ns", &StepCell::copy_ns},
                                        {"caused_wait_ns", &StepCell::caused_wait_ns}};
    Json cells = Json::object();
    for (const Value& value : kValues) cells[value.name] = Cells(value.member);
    std::set<size_t> incomplete;
    for (const size_t number : members_) {
      if (number >= grid_.rows.size()) continue;
      for (size_t column = 0; column < grid_.rows[number].size(); ++column) {
        if (grid_.rows[number][column].incomplete > 0) incomplete.insert(column);
      }
    }
    return {{"first_step", grid_.first_step},
            {"steps_per_column", grid_.steps_per_column},
            {"columns", grid_.columns},
            {"rows", members_.size()},
            {"cells", cells},
            {"incomplete_columns", incomplete}};
  }

  // Where every complete step has as many calls, one number says it.
  static std::optional<uint64_t> CallsPerStep(const WorkGrid& work, const WorkGrid::Rows& rows) {
    std::optional<uint64_t> each;
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t column = 0; column < rows[row].size(); ++column) {
        const uint64_t steps = work.steps[row][column];
        if (steps == 0) continue;
        const uint64_t calls = rows[row][column].calls;
        if (calls % steps != 0 || (each.has_value() && *each != calls / steps)) return std::nullopt;
        each = calls / steps;
      }
    }
    return each;
  }

  // Value of a cell, by row and column; `value` gives a number, or nullopt for none.
  template <typename Value>
  static std::string WorkCells(const WorkGrid& work, const WorkGrid::Rows& rows, Value value) {
    std::vector<uint16_t> packed;
    packed.reserve(rows.size() * work.columns);
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t column = 0; column < work.columns; ++column) {
        const bool none = rows[row].empty() || work.steps[row][column] == 0;
        const std::optional<double> number = none ? std::nullopt : value(rows[row][column]);
        packed.push_back(number.has_value() ? PackCell(*number) : kNoCell);
      }
    }
    return PackCells(packed);
  }

  static Json WorkJson(const WorkGrid& work, const WorkGrid::Rows& rows, size_t place, bool transfers) {
    const auto calls = [](const WorkCell& cell) { return std::optional(static_cast<double>(cell.calls)); };
    const auto time = [](const WorkCell& cell) {
      return cell.calls == 0
                 ? std::nullopt
                 : std::optional(static_cast<double>(cell.time_ns) / static_cast<double>(cell.calls));
    };
    const auto transfer = [](const WorkCell& cell) {
      return cell.transfers > 0 ? std::optional(cell.transfer_ns / cell.transfers) : std::nullopt;
    };
    Json out = {{"place", place}};
    if (const std::optional<uint64_t> each = CallsPerStep(work, rows); each.has_value()) {
      out["calls_per_step"] = *each;
    } else {
      out["calls"] = WorkCells(work, rows, calls);
    }
    out["time_ns"] = WorkCells(work, rows, time);
    if (transfers) out["transfer_ns"] = WorkCells(work, rows, transfer);
    return out;
  }

  static Json WorkJson(const WorkGrid& work, const std::vector<WorkGrid::Rows>& all, bool transfers) {
    Json out = Json::array();
    for (size_t place = 0; place < all.size(); ++place) {
      const bool any =
          std::any_of(all[place].begin(), all[place].end(), [](const auto& row) { return !row.empty(); });
      if (any) out.push_back(WorkJson(work, all[place], place, transfers));
    }
    return out;
  }

  static Json PhasesJson(const model::WorkColumns::Phases& phases) {
    Json out = Json::object();
    for (size_t i = 0; i < phases.size(); ++i) {
      if (phases[i].calls == 0) continue;
      out[report::Word(static_cast<model::StepPhase>(i))] = {{"calls", phases[i].calls},
                                                             {"time_ns", phases[i].time_ns}};
    }
    return out;
  }

  Json Work() const {
    if (grid_.columns == 0) return nullptr;
    const WorkGrid work = WorkGridOf(job_, report_, members_, grid_);
    std::vector<uint16_t> steps;
    for (const std::vector<uint32_t>& row : work.steps) {
      for (size_t column = 0; column < work.columns; ++column)
        steps.push_back(row.empty() ? 0 : PackCell(row[column]));
    }
    Json kernels = WorkJson(work, work.kernels, false);
    for (Json& kernel : kernels) kernel["phases"] = PhasesJson(work.phases[kernel["place"].get<size_t>()]);
    return {{"steps_per_column", work.steps_per_column},
            {"columns", work.columns},
            {"steps", PackCells(steps)},
            {"kernels", std::move(kernels)},
            {"collectives", WorkJson(work, work.collectives, true)}};
  }

  // When the steps of the ranks whose memory is shown began.
  Json StepStarts() const {
    Json out = Json::array();
    if (grid_.columns == 0) return out;
    for (const size_t member : ChooseMembers(job_, report_, grid_)) {
      const std::optional<size_t> row = RowOf(member);
      const std::vector<StepCell>& cells = grid_.rows[member];
      if (!row.has_value() || cells.empty()) continue;
      std::vector<uint16_t> since;  // of each column, from the start of the one before that has steps
      uint64_t first_ns = 0;
      uint64_t before_ns = 0;
      for (const StepCell& cell : cells) {
        if (cell.steps == 0) {
          since.push_back(kNoCell);
          continue;
        }
        if (first_ns == 0) first_ns = before_ns = cell.start_ns;
        since.push_back(PackCell(static_cast<double>(cell.start_ns - std::min(before_ns, cell.start_ns))));
        before_ns = cell.start_ns;
      }
      out.push_back({{"row", *row},
                     {"first_ns", Since(first_ns, report_.conditions.start_ns)},
                     {"since_before_ns", PackCells(since)}});
    }
    return out;
  }

  std::string Cells(float StepCell::*member) const {
    std::vector<uint16_t> packed;
    packed.reserve(members_.size() * grid_.columns);
    for (const size_t number : members_) {
      const bool empty = number >= grid_.rows.size() || grid_.rows[number].empty();
      for (size_t column = 0; column < grid_.columns; ++column) {
        const StepCell cell = empty ? StepCell{} : grid_.rows[number][column];
        packed.push_back(cell.steps == 0 ? kNoCell : PackCell(cell.*member));
      }
    }
    return PackCells(packed);
  }

  // nullopt: the member is not among the report's ranks.
  std::optional<size_t> RowOf(size_t member) const {
    const auto found = std::find(members_.begin(), members_.end(), member);
    if (found == members_.end()) return std::nullopt;
    return static_cast<size_t>(found - members_.begin());
  }

  Json TimelineJson(const Timeline& timeline) const {
    std::vector<std::pair<size_t, const RankTimeline*>> rows;
    for (const RankTimeline& rank : timeline.ranks) {
      if (const std::optional<size_t> row = RowOf(rank.member); row.has_value())
        rows.emplace_back(*row, &rank);
    }
    std::sort(rows.begin(), rows.end());
    Json ranks = Json::array();
    for (const auto& [row, rank] : rows) {
      Json entry = SlicesJson(rank->slices, timeline.start_ns);
      entry["row"] = row;
      const bool known = rank->end_ns != 0;
      entry["step_start_ns"] = known ? Json(Since(rank->start_ns, timeline.start_ns)) : Json(nullptr);
      entry["step_end_ns"] = known ? Json(Since(rank->end_ns, timeline.start_ns)) : Json(nullptr);
      ranks.push_back(std::move(entry));
    }
    return {{"step", timeline.step},
            {"column", timeline.chosen.column},
            {"slowest", timeline.chosen.slowest},
            {"median", timeline.chosen.median},
            {"findings", timeline.chosen.findings},
            {"start_ns", timeline.start_ns},
            {"length_ns", timeline.end_ns - timeline.start_ns},
            {"ranks", std::move(ranks)}};
  }

  static int64_t Since(uint64_t time_ns, uint64_t start_ns) {
    return static_cast<int64_t>(time_ns - start_ns);
  }

  static Json SlicesJson(const RankSlices& slices, uint64_t start_ns) {
    Json tracks = Json::array();
    for (const Track& track : slices.tracks)
      tracks.push_back({{"name", track.name}, {"ranges", track.ranges}});
    Json columns = {{"track", Json::array()}, {"start_ns", Json::array()}, {"length_ns", Json::array()},
                    {"name", Json::array()},  {"kind", Json::array()},     {"count", Json::array()},
                    {"seq", Json::array()},   {"comm", Json::array()}};
    for (const Slice& slice : slices.slices) {
      columns["track"].push_back(slice.track);
      columns["start_ns"].push_back(Since(slice.start_ns, start_ns));
      columns["length_ns"].push_back(slice.end_ns - slice.start_ns);
      columns["name"].push_back(slice.name);
      columns["kind"].push_back(static_cast<int>(slice.kind));
      columns["count"].push_back(slice.count);
      columns["seq"].push_back(slice.seq);
      columns["comm"].push_back(slice.comm);
    }
    Json host = {{"start_ns", Json::array()}, {"length_ns", Json::array()}, {"thread", Json::array()},
                 {"name", Json::array()},     {"details", Json::array()},   {"samples", Json::array()}};
    for (const HostSlice& slice : slices.host) {
      host["start_ns"].push_back(Since(slice.start_ns, start_ns));
      host["length_ns"].push_back(slice.end_ns - slice.start_ns);
      host["thread"].push_back(slice.thread);
      host["name"].push_back(slice.name);
      host["details"].push_back(slice.details);
      host["samples"].push_back(slice.samples);
    }
    return {{"tracks", std::move(tracks)}, {"slices", std::move(columns)}, {"host", std::move(host)}};
  }

  Json Memory() const {
    Json out = Json::array();
    for (const MemoryLevels& levels : MemoryLevelsOf(job_, ChooseMembers(job_, report_, grid_))) {
      const std::optional<size_t> row = RowOf(levels.member);
      if (!row.has_value()) continue;
      out.push_back({{"row", *row},
                     {"kind", levels.kind},
                     {"device", levels.device.has_value() ? Json(*levels.device) : Json(nullptr)},
                     {"start_ns", Since(levels.start_ns, report_.conditions.start_ns)},
                     {"width_ns", levels.width_ns},
                     {"greatest_bytes", levels.greatest_bytes},
                     {"least_bytes", levels.least_bytes}});
    }
    return out;
  }

  const model::JobModel& job_;
  const analysis::Report& report_;
  std::vector<size_t> members_;
  StepGrid grid_;
};

}  // namespace

std::string StepsData(const model::JobModel& job, const analysis::Report& report) {
  return Document(job, report).StepsText();
}

std::string PageData(const model::JobModel& job, const analysis::Report& report, const store::RunFiles& files,
                     std::span<const uint64_t> wanted) {
  return Document(job, report).Text(files, wanted);
}

}  // namespace gpuprobe::page
