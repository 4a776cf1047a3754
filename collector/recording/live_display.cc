#include "collector/recording/live_display.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "collector/log/log.h"
#include "collector/render/live_text.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {

constexpr uint64_t kSecondNs = 1'000'000'000;
// A collector writes every second. One that was killed leaves its last state behind.
constexpr std::chrono::seconds kStale{30};

bool IsLive(const std::string& directory) {
  std::error_code error;
  const auto written =
      std::filesystem::last_write_time(std::filesystem::path(directory) / store::kLiveFile, error);
  return !error && std::filesystem::file_time_type::clock::now() - written < kStale;
}

LiveDisplay::LiveDisplay(uint64_t seconds, const render::Screen& screen)
    : screen_(screen), interval_ns_(isatty(STDERR_FILENO) != 0 ? seconds * kSecondNs : 0) {}

void LiveDisplay::Tick(const analysis::LiveStatus& status, uint64_t monotonic_ns) {
  if (interval_ns_ == 0 || status.ranks.empty()) return;
  if (next_ns_ == 0) next_ns_ = monotonic_ns + interval_ns_;
  if (monotonic_ns < next_ns_) return;
  next_ns_ = monotonic_ns + interval_ns_;
  const render::Layout layout(screen_);
  const std::string name = "gpuprobe: ";
  std::string text;
  if (!introduced_) text = layout.FirstLine("  ", name + render::LiveIntroduction(status));
  introduced_ = true;
  const std::string line = render::LiveLineWithin(status, screen_, screen_.width - name.size());
  text += name.size() + line.size() <= screen_.width ? absl::StrCat(name, line, "\n")
                                                     : layout.FirstLine("  ", name + line);
  log::SayForPeople(text);
}

}  // namespace gpuprobe::recording
