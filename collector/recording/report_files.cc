#include "collector/recording/report_files.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "collector/page/page.h"
#include "collector/render/json_report.h"
#include "collector/render/summary_json.h"

namespace gpuprobe::recording {

absl::Status WriteReportFiles(const store::Directory& directory, const store::RunFiles& files,
                              const model::JobModel& job, const analysis::Report& report) {
  const std::string page = page::Page(job, report, files);
  const render::JsonFiles json = render::JsonReportFiles(report);
  const std::string summary = render::SummaryJson(report);
  std::error_code error;
  if (std::none_of(files.segments.begin(), files.segments.end(), [&](const store::Segment& segment) {
        return std::filesystem::exists(segment.path, error);
      }))
    return absl::NotFoundError(absl::StrCat(directory.path(), " was removed"));
  absl::Status status = directory.WriteFile("report.html", page);
  if (json.ranks.empty()) {
    directory.Remove(render::kRanksFile);
  } else {
    status.Update(directory.WriteFile(render::kRanksFile, json.ranks));
  }
  status.Update(directory.WriteFile(render::kSummaryFile, summary));
  status.Update(directory.WriteFile(render::kReportFile, json.report));
  return status;
}

}  // namespace gpuprobe::recording
