#include "collector/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"
#include "collector/cli/command.h"
#include "collector/cli/screen.h"
#include "collector/recording/version.h"
#include "collector/render/text_layout.h"
#include "collector/store/read_progress.h"
#include "collector/store/run_files.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

constexpr uint64_t kFirstNs = 1'000'000'000;
constexpr uint64_t kRedrawEveryNs = 200'000'000;

bool shown = false;

}  // namespace

Progress::Progress(std::string verb, const std::string& what, uint64_t total)
    : verb_(std::move(verb)), what_(text::Printable(what)), total_(total) {
  if (total_ > 0 && CanRedraw(STDERR_FILENO)) next_ns_ = recording::MonotonicNs() + kFirstNs;
}

Progress::Progress(const std::vector<std::string>& directories) : verb_("reading") {
  // A dumb terminal cannot erase a line, and where results go to the same terminal they would mix with it.
  if (!CanRedraw(STDERR_FILENO)) return;
  for (const std::string& directory : directories) {
    const absl::StatusOr<store::RunFiles> files = store::ListRun(directory);
    if (!files.ok()) return;
    for (const store::Segment& segment : files->segments) {
      std::error_code error;
      const uintmax_t size = std::filesystem::file_size(segment.path, error);
      if (!error) total_ += size;
    }
  }
  if (total_ == 0) return;
  what_ = text::Printable(absl::StrJoin(directories, " and "));
  next_ns_ = recording::MonotonicNs() + kFirstNs;
  store::ObserveReading([this](uint64_t bytes) { Note(bytes); });
}

Progress::~Progress() {
  store::ObserveReading({});
  Hide();
}

void Progress::Hide() {
  if (!shown) return;
  shown = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::Note(uint64_t bytes) {
  done_ += bytes;
  const uint64_t now_ns = recording::MonotonicNs();
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + kRedrawEveryNs;
  // Pictures and tables take further readings, because they need the result of the first.
  const uint64_t reading = (done_ - 1) / total_ + 1;
  const uint64_t percent = ((done_ - 1) % total_ + 1) * 100 / total_;
  std::string line =
      absl::StrCat("gpuprobe: ", verb_, " ", what_, reading > 1 ? absl::StrCat(", time ", reading) : "", ": ",
                   percent, " % of ", analysis::Bytes(total_));
  const size_t width = ScreenOf(STDERR_FILENO, true).width;
  if (line.size() >= width) line = absl::StrCat("gpuprobe: ", verb_, ": ", percent, " %");
  std::fputs(absl::StrCat("\r", line, "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  shown = true;
}

}  // namespace gpuprobe::cli
