#include "collector/cli/live_display.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/render/live_text.h"

namespace gpuprobe::cli {

constexpr uint64_t kSecondNs = 1'000'000'000;

LiveDisplay::LiveDisplay(uint64_t seconds, const render::Screen& screen)
    : screen_(screen), interval_ns_(isatty(STDERR_FILENO) != 0 ? seconds * kSecondNs : 0) {}

void LiveDisplay::Tick(const analysis::LiveStatus& status, uint64_t monotonic_ns) {
  if (interval_ns_ == 0 || status.ranks.empty()) return;
  if (next_ns_ == 0) next_ns_ = monotonic_ns + interval_ns_;
  if (monotonic_ns < next_ns_) return;
  next_ns_ = monotonic_ns + interval_ns_;
  std::string text;
  if (!introduced_) absl::StrAppend(&text, "gpuprobe: ", render::LiveIntroduction(status), "\n");
  introduced_ = true;
  absl::StrAppend(&text, "gpuprobe: ", render::LiveLine(status, screen_), "\n");
  // In one piece: the program writes to the same terminal.
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace gpuprobe::cli
