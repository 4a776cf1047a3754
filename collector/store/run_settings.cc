#include "collector/store/run_settings.h"

#include <memory>
#include <sstream>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_files.h"

namespace gpuprobe::store {
namespace {

constexpr size_t kMostBytes = size_t{64} << 10;  // the file may come from elsewhere and hold anything
constexpr std::string_view kStepMarker = "step-marker=";
constexpr std::string_view kHangAfter = "hang-after=";

}  // namespace

absl::Status WriteRunSettings(const Directory& directory, const RunSettings& settings) {
  std::string text;
  if (!settings.step_marker.empty())
    absl::StrAppend(&text, std::string(kStepMarker), settings.step_marker, "\n");
  if (settings.hang_after_s.has_value())
    absl::StrAppend(&text, std::string(kHangAfter), *settings.hang_after_s, "\n");
  return text.empty() ? absl::OkStatus() : directory.WriteFile(kSettingsFile, text);
}

RunSettings ReadRunSettings(const std::string& directory) {
  RunSettings settings;
  // The hosts of one job were given the same ones.
  const absl::StatusOr<RunFiles> files = ListRun(directory, Dropped::kAllow);
  const std::string folder =
      files.ok() && !files->hosts.empty() ? absl::StrCat("/", files->hosts.front()) : "";
  const absl::StatusOr<std::unique_ptr<MappedFile>> mapped =
      MappedFile::Open(absl::StrCat(directory, folder, "/", kSettingsFile));
  if (!mapped.ok()) return settings;
  std::istringstream file((*mapped)->Read(0, kMostBytes));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kStepMarker)) settings.step_marker = line.substr(kStepMarker.size());
    uint64_t seconds = 0;
    if (line.starts_with(kHangAfter) && absl::SimpleAtoi(line.substr(kHangAfter.size()), &seconds))
      settings.hang_after_s = seconds;
  }
  return settings;
}

}  // namespace gpuprobe::store
