#include "collector/cli/live_run.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/fetch.h"
#include "collector/recording/live_display.h"
#include "collector/render/live_json.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_files.h"
#include "collector/store/run_settings.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{16} << 20;

absl::StatusOr<std::string> ReadLiveFile(const std::string& directory) {
  absl::StatusOr<std::unique_ptr<store::MappedFile>> file =
      store::MappedFile::Open(fs::path(directory) / store::kLiveFile);
  if (!file.ok()) return file.status();
  return (*file)->Read(0, kMostBytes);
}

absl::StatusOr<analysis::LiveStatus> ReadLiveStatus(const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadLiveFile(directory);
  if (!text.ok()) return absl::NotFoundError(text.status().message());
  absl::StatusOr<analysis::LiveStatus> status = render::ParseLiveJson(*text);
  if (!status.ok())
    return absl::DataLossError(
        absl::StrCat(directory, "/", store::kLiveFile, ": ", status.status().message()));
  return status;
}

}  // namespace

std::string NewestLiveRun() {
  std::string newest;
  fs::file_time_type latest{};
  std::error_code error;
  const auto look = [&](const fs::path& folder, const fs::path& run) {
    if (!recording::IsLive(folder.string())) return;
    const fs::file_time_type written = fs::last_write_time(folder / store::kLiveFile, error);
    if (!newest.empty() && (error || written <= latest)) return;
    latest = written;
    newest = run.string();
  };
  for (const fs::directory_entry& run : fs::directory_iterator(kRuns, error)) {
    look(run.path(), run.path());
    for (const fs::directory_entry& host : fs::directory_iterator(run.path(), error))
      if (host.is_directory(error)) look(host.path(), run.path());
  }
  return newest;
}

absl::Status WhyNotLive(const std::string& directory) {
  const absl::StatusOr<store::RunFiles> run = store::ListRun(directory);
  if (!run.ok()) return run.status();
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(fs::path(directory) / store::kLiveFile, error);
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

LiveRun::LiveRun(std::string place) : directory_(std::move(place)) {
  if (http::IsUrl(directory_)) return;
  const absl::StatusOr<store::RunFiles> files = store::ListRun(directory_, store::Dropped::kAllow);
  if (!files.ok() || files->hosts.empty()) return;
  recording::HangOptions hangs;
  hangs.seconds = store::ReadRunSettings(directory_).hang_after_s.value_or(hangs.seconds);
  whole_.emplace(directory_, recording::ChosenMarker(), hangs, [](const std::string&) {});
}

absl::StatusOr<analysis::LiveStatus> LiveRun::Look() {
  if (http::IsUrl(directory_)) {
    absl::StatusOr<std::string> text = http::Fetch(directory_, "/api/status");
    // Who has answered before, and does not any more, has ended.
    // A hub stays, and has the status of jobs that run.
    if ((absl::IsUnavailable(text.status()) || absl::IsNotFound(text.status())) && !served_.empty())
      return absl::NotFoundError(directory_);
    if (!text.ok()) return absl::UnavailableError(text.status().message());
    served_ = *std::move(text);
    return render::ParseLiveJson(served_);
  }
  if (!whole_.has_value()) {
    if (!recording::IsLive(directory_)) return absl::NotFoundError(directory_);
    return ReadLiveStatus(directory_);
  }
  if (absl::Status s = whole_->Look(); !s.ok()) return s;
  if (whole_->HostsThatRecord().empty()) return absl::NotFoundError(directory_);
  return whole_->status();
}

absl::StatusOr<std::string> LiveRun::Json() const {
  if (!served_.empty()) return absl::StrCat(served_, "\n");
  return whole_.has_value() ? absl::StrCat(render::LiveJson(whole_->status()), "\n")
                            : ReadLiveFile(directory_);
}

}  // namespace gpuprobe::cli
