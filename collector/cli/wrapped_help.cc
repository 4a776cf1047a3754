#include "collector/cli/wrapped_help.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/cli/screen.h"

namespace gpuprobe::cli {
namespace {

// A second column that is narrower continues below the first one.
constexpr size_t kNarrowestColumn = 24;
constexpr size_t kShallowIndent = 6;

// Where a line's text begins: behind its first column if it has one, else behind its indentation.
size_t TextBegin(std::string_view line) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", first);
  if (gap == std::string_view::npos) return first;
  const size_t text = line.find_first_not_of(' ', gap);
  return text == std::string_view::npos ? first : text;
}

bool IsCommand(std::string_view line, size_t text) {
  return text > 0 && line.substr(text).starts_with("gpuprobe ");
}

size_t LongestWord(const std::string& text) {
  size_t longest = 0;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ' ')))
    longest = std::max(longest, word.size());
  return longest;
}

std::string WrappedLine(const std::string& line, const render::Screen& screen) {
  const size_t text = TextBegin(line);
  if (line.size() <= screen.width || IsCommand(line, text)) return line + "\n";
  const render::Layout layout(screen);
  if (text + std::max(kNarrowestColumn, LongestWord(line.substr(text))) <= screen.width)
    return layout.Wrap(line.substr(0, text), std::string(text, ' '), line.substr(text));
  const std::string indent(kShallowIndent, ' ');
  const std::string name = line.substr(0, line.find_last_not_of(' ', text - 1) + 1);
  return absl::StrCat(name, name.empty() ? "" : "\n", layout.Wrap(indent, indent, line.substr(text)));
}

}  // namespace

std::string Wrapped(std::string_view help, const render::Screen& screen) {
  if (!help.empty() && help.back() == '\n') help.remove_suffix(1);
  std::string out;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(std::string(help), '\n')))
    out += WrappedLine(line, screen);
  return out;
}

std::string WrappedFor(int fd, std::string_view help) {
  const render::Screen screen = ScreenOf(fd, /*no_color=*/true);
  return screen.is_terminal ? Wrapped(help, screen) : std::string(help);
}

}  // namespace gpuprobe::cli
