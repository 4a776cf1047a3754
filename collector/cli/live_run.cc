#include "collector/cli/live_run.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "collector/recording/live_display.h"
#include "collector/render/live_json.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_files.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

// A collector writes every second. One that was killed leaves its last state behind.
constexpr std::chrono::seconds kStale{30};
constexpr size_t kMostBytes = size_t{16} << 20;

}  // namespace

bool IsLive(const std::string& directory) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(fs::path(directory) / recording::kLiveFile, error);
  return !error && fs::file_time_type::clock::now() - written < kStale;
}

absl::StatusOr<std::string> ReadLiveFile(const std::string& directory) {
  absl::StatusOr<std::unique_ptr<store::MappedFile>> file =
      store::MappedFile::Open(fs::path(directory) / recording::kLiveFile);
  if (!file.ok()) return file.status();
  return (*file)->Read(0, kMostBytes);
}

std::string NewestLiveRun() {
  std::string newest;
  fs::file_time_type latest{};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRuns, error)) {
    if (!IsLive(entry.path().string())) continue;
    const fs::file_time_type written = fs::last_write_time(entry.path() / recording::kLiveFile, error);
    if (!newest.empty() && (error || written <= latest)) continue;
    latest = written;
    newest = entry.path().string();
  }
  return newest;
}

absl::StatusOr<analysis::LiveStatus> ReadLiveStatus(const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadLiveFile(directory);
  if (!text.ok()) return absl::NotFoundError(text.status().message());
  absl::StatusOr<analysis::LiveStatus> status = render::ParseLiveJson(*text);
  if (!status.ok())
    return absl::DataLossError(
        absl::StrCat(directory, "/", recording::kLiveFile, ": ", status.status().message()));
  return status;
}

absl::Status WhyNotLive(const std::string& directory) {
  const absl::StatusOr<store::RunFiles> run = store::ListRun(directory);
  if (!run.ok()) return run.status();
  if (!run->hosts.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(directory, " has the runs of ", run->hosts.size(),
                                                      " hosts; name one, such as ", directory, "/",
                                                      run->hosts.front()));
  }
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(fs::path(directory) / recording::kLiveFile, error);
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " is not being recorded (any more); for its report: gpuprobe report ", directory));
  }
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() - written);
  return absl::FailedPreconditionError(
      absl::StrCat(directory, ": its collector has written nothing for ", age.count(),
                   " s, so it was killed or is stuck; for what was recorded: gpuprobe report ", directory));
}

}  // namespace gpuprobe::cli
