#include "collector/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace gpuprobe::cli {
namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

render::Screen ScreenOf(int fd, bool no_color) {
  render::Screen screen;
  if (isatty(fd) == 0) return screen;
  screen.is_terminal = true;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    screen.width = std::max<size_t>(size.ws_col, render::Screen::kNarrowest);
  // https://no-color.org: any value that is not empty.
  screen.colors = !no_color && Variable("NO_COLOR").empty() && CanRedraw(fd);
  return screen;
}

bool CanRedraw(int fd) { return isatty(fd) != 0 && Variable("TERM") != "dumb" && !Variable("TERM").empty(); }

}  // namespace gpuprobe::cli
