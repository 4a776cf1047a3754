#include "collector/recording/hub_runs.h"

#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/hub/users.h"
#include "collector/render/json_report.h"
#include "collector/store/run_directory.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::recording {
namespace {

namespace fs = std::filesystem;

constexpr char kPageFile[] = "report.html";

}  // namespace

std::string RowText(const http::ListedJob& row) {
  http::JobList list;
  list.jobs.push_back(row);
  nlohmann::ordered_json file = nlohmann::ordered_json::parse(http::JobsJson(list));
  nlohmann::ordered_json& gpus = file["jobs"][0]["gpus"] = nlohmann::ordered_json::object();
  if (row.steps != nullptr) file["jobs"][0]["steps"] = http::StepsJson(*row.steps);
  for (const auto& [host, its] : *row.gpus) {
    for (const auto& [uuid, seconds] : its) gpus[text::ValidUtf8(host)][text::ValidUtf8(uuid)] = seconds;
  }
  return file.dump() + "\n";
}

std::string IdOfRun(const fs::path& directory, const std::string& user) {
  const std::string folder = directory.filename();
  return user.empty() ? folder : absl::StrCat(user, "/", folder);
}

http::ListedJob WithPages(http::ListedJob row, const fs::path& directory, const std::string& user) {
  row.id = IdOfRun(directory, user);
  row.user = user;
  row.directory = directory;
  row.page = directory / kPageFile;
  row.report = directory / render::kReportFile;
  row.text = directory / kTextFile;
  return row;
}

bool FindRuns(const std::string& out, bool has_users, std::vector<FoundRun>& found) {
  std::error_code error;
  for (fs::directory_iterator it(out, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    std::error_code of_user;
    if (!has_users || !hub::IsUserName(name) || fs::exists(it->path() / store::kJobFile, of_user)) {
      found.push_back({.user = "", .path = it->path()});
      continue;
    }
    for (fs::directory_iterator run(it->path(), of_user); !of_user && run != end; run.increment(of_user))
      found.push_back({.user = name, .path = run->path()});
  }
  return !error;
}

std::map<std::string, http::ListedJob> RowsIn(const std::vector<FoundRun>& runs) {
  std::map<std::string, http::ListedJob> rows;
  for (const FoundRun& run : runs) {
    std::ifstream file(run.path / kRowFile);
    const nlohmann::json list = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (list.is_discarded()) continue;
    try {
      const nlohmann::json& from = list.at("jobs").at(0);
      http::ListedJob row;
      row.name = from.at("name");
      row.state = "over";
      row.hosts = from.at("hosts");
      row.ranks = from.at("ranks");
      if (!from.at("step_ns").is_null()) row.step_ns = from.at("step_ns").get<double>();
      row.finding = from.at("finding");
      row.attempt = from.value("attempt", uint64_t{1});
      row.gpu_seconds = from.value("gpu_seconds", 0.0);
      for (const nlohmann::json& finding : from.value("findings", nlohmann::json::array())) {
        row.findings.push_back({.id = finding.at("id"),
                                .hosts = finding.at("hosts"),
                                .gpu_uuids = finding.at("gpu_uuids"),
                                .lost_gpu_seconds = finding.at("lost_gpu_seconds")});
      }
      row.gpus = std::make_shared<http::ListedJob::Gpus>(from.value("gpus", http::ListedJob::Gpus()));
      if (from.contains("steps"))
        row.steps = std::make_shared<http::ListedSteps>(http::StepsFromJson(from.at("steps")));
      row.begun_ns = from.at("begun_ns");
      row.ended_ns = from.at("ended_ns");
      rows[run.path] = WithPages(std::move(row), run.path, run.user);
    } catch (const nlohmann::json::exception&) {
      continue;  // it is listed no more
    }
  }
  return rows;
}

}  // namespace gpuprobe::recording
