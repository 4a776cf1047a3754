#include "collector/cli/recorded_runs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collector/analysis/units.h"
#include "collector/cli/live_run.h"
#include "collector/render/table.h"
#include "collector/store/run_files.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;
using State = RunSummary::State;

constexpr char kReportFile[] = "report.json";

const char* WordOf(State state) {
  switch (state) {
    case State::kRecording:
      return "recording";
    case State::kReported:
      return "reported";
    default:
      return "unfinished";
  }
}

// A number at that place, if it is one.
template <typename T>
std::optional<T> NumberAt(const nlohmann::json& report, const char* path) {
  const nlohmann::json::json_pointer pointer(path);
  if (!report.contains(pointer)) return std::nullopt;
  const nlohmann::json& value = report.at(pointer);
  return value.is_number() ? std::optional(value.get<T>()) : std::nullopt;
}

}  // namespace

std::vector<std::string> RunsIn(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::error_code failed;
    if (!entry.is_directory(failed) || !store::ListRun(entry.path().string(), store::Dropped::kAllow).ok())
      continue;
    found.emplace_back(entry.last_write_time(failed), entry.path().string());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<std::string> runs;
  runs.reserve(found.size());
  for (auto& [written, path] : found) runs.push_back(std::move(path));
  return runs;
}

absl::StatusOr<std::string> NewestRun() {
  std::vector<std::string> runs = RunsIn(kRuns);
  if (!runs.empty()) return std::move(runs.front());
  return absl::NotFoundError(absl::StrCat("there is no run under ", kRuns,
                                          " here; name a run directory, or the URL of a served run"));
}

RunSummary SummaryOf(const std::string& directory) {
  RunSummary run;
  run.directory = directory;
  if (LiveRun(directory).Look().ok()) run.state = State::kRecording;
  std::ifstream file(fs::path(directory) / kReportFile);
  if (!file) return run;
  const nlohmann::json report = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) return run;
  if (run.state == State::kUnfinished) run.state = State::kReported;
  run.start_ns = NumberAt<uint64_t>(report, "/conditions/start_ns");
  run.duration_ns = NumberAt<uint64_t>(report, "/conditions/duration_ns");
  run.ranks = NumberAt<uint64_t>(report, "/conditions/ranks_heard");
  run.steps = NumberAt<uint64_t>(report, "/steps/count");
  run.step_ns = NumberAt<double>(report, "/steps/time_ns/mean");
  const nlohmann::json::json_pointer first("/findings/0/id");
  if (report.contains(first) && report.at(first).is_string())
    run.finding = report.at(first).get<std::string>();
  return run;
}

std::string RunsText(const std::vector<RunSummary>& runs, const render::Screen& screen) {
  render::Table table{.id = "runs",
                      .title = "",
                      .columns = {"run", "began (UTC)", "lasted", "ranks", "steps", "step", "first finding"},
                      .left = {true, true, false, false, false, false, true},
                      .rows = {},
                      .note = ""};
  const auto count = [](const std::optional<uint64_t>& n) {
    return n.has_value() ? analysis::Count(*n) : "-";
  };
  for (const RunSummary& run : runs) {
    const std::string began =
        run.start_ns.has_value()
            ? absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(static_cast<int64_t>(*run.start_ns)),
                               absl::UTCTimeZone())
            : "-";
    const std::string lasted =
        run.duration_ns.has_value() ? analysis::Duration(static_cast<double>(*run.duration_ns)) : "-";
    table.rows.push_back(
        {run.directory, began, lasted, count(run.ranks), count(run.steps),
         run.step_ns.has_value() ? analysis::Duration(*run.step_ns) : "-",
         run.state == State::kReported ? run.finding : absl::StrCat("(", WordOf(run.state), ")")});
  }
  return render::Layout(screen).Lay(table);
}

nlohmann::ordered_json RunsJson(const std::vector<RunSummary>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto put = [](nlohmann::ordered_json& object, const char* name, const auto& value) {
    object[name] = value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  for (const RunSummary& run : runs) {
    nlohmann::ordered_json object{{"directory", run.directory}, {"state", WordOf(run.state)}};
    put(object, "start_ns", run.start_ns);
    put(object, "duration_ns", run.duration_ns);
    put(object, "ranks", run.ranks);
    put(object, "steps", run.steps);
    put(object, "step_ns", run.step_ns);
    object["finding"] = run.finding.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(run.finding);
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace gpuprobe::cli
