#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/live_display.h"
#include "collector/cli/output.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_files.h"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kName[] = "top";
constexpr char kRuns[] = "gpuprobe-runs";
constexpr std::chrono::milliseconds kRefresh{1000};
// A collector writes every second. One that was killed leaves its last screen behind.
constexpr std::chrono::seconds kStale{30};
constexpr size_t kMostBytes = size_t{1} << 20;

bool IsLive(const fs::path& directory) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(directory / kLiveFile, error);
  return !error && fs::file_time_type::clock::now() - written < kStale;
}

std::optional<std::string> ReadScreen(const std::string& directory) {
  if (!IsLive(directory)) return std::nullopt;
  const absl::StatusOr<std::unique_ptr<store::MappedFile>> file =
      store::MappedFile::Open(fs::path(directory) / kLiveFile);
  if (!file.ok()) return std::nullopt;
  // Whoever sent the directory may have written anything: no control characters reach the terminal.
  std::string text;
  for (const char c : (*file)->Read(0, kMostBytes)) {
    if (c == '\n' || static_cast<unsigned char>(c) >= 0x20) text.push_back(c);
  }
  return text;
}

// The run under gpuprobe-runs/ that was written last, of those that are being recorded.
std::string NewestRun() {
  std::string newest;
  fs::file_time_type latest{};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRuns, error)) {
    if (!IsLive(entry.path())) continue;
    const fs::file_time_type written = fs::last_write_time(entry.path() / kLiveFile, error);
    if (!newest.empty() && (error || written <= latest)) continue;
    latest = written;
    newest = entry.path().string();
  }
  return newest;
}

// Why it has no screen.
absl::Status WhyNotLive(const std::string& directory) {
  const absl::StatusOr<store::RunFiles> run = store::ListRun(directory);
  if (!run.ok()) return run.status();
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(fs::path(directory) / kLiveFile, error);
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

}  // namespace

int TopMain(const Arguments& arguments) {
  CLI::App app("Shows a job while it runs, one row per rank, refreshed every second", "gpuprobe top");
  std::string directory;
  bool once = false;
  app.add_option("DIR", directory, "run directory [the one under gpuprobe-runs that is being recorded]")
      ->check(NotEmpty());
  app.add_flag("--once", once, "print the screen once and exit");
  if (const auto code = Parse(app, arguments)) return *code;
  if (directory.empty()) directory = NewestRun();
  if (directory.empty()) {
    return Fail(kName, absl::StrCat("no run is being recorded under ", kRuns, "; name the run directory"),
                kFailed);
  }
  const bool redraw = !once && isatty(STDOUT_FILENO) != 0;
  std::optional<std::string> screen = ReadScreen(directory);
  if (!screen.has_value()) return Fail(kName, WhyNotLive(directory), kFailed);
  while (screen.has_value()) {
    Print(absl::StrCat(redraw ? "\x1b[H\x1b[J" : "", *screen));
    if (!FlushOutput() || once) return kDone;
    std::this_thread::sleep_for(kRefresh);
    screen = ReadScreen(directory);
  }
  Print(absl::StrCat("the run is over: gpuprobe report ", directory, "\n"));
  return kDone;
}

}  // namespace gpuprobe::cli
