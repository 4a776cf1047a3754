#include "collector/store/run_settings.h"

#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/store/run_directory.h"

namespace gpuprobe::store {
namespace {

constexpr char kFile[] = "/settings.txt";
constexpr std::string_view kStepMarker = "step-marker=";

}  // namespace

absl::Status WriteRunSettings(const std::string& directory, const RunSettings& settings) {
  if (settings.step_marker.empty()) return absl::OkStatus();
  return WriteFile(directory + kFile, absl::StrCat(std::string(kStepMarker), settings.step_marker, "\n"));
}

RunSettings ReadRunSettings(const std::string& directory) {
  RunSettings settings;
  std::ifstream file(directory + kFile, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kStepMarker)) settings.step_marker = line.substr(kStepMarker.size());
  }
  return settings;
}

}  // namespace gpuprobe::store
