#include "collector/render/text_layout.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/text/characters.h"

namespace gpuprobe::render {
namespace {

// Text cells are not shortened further.
constexpr size_t kShortestText = 16;
constexpr char kCut[] = "...";
constexpr size_t kCutWidth = sizeof(kCut) - 1;

bool IsNumber(std::string_view word) {
  const size_t digit = word.find_first_not_of("+-(~");
  return digit != std::string_view::npos && std::isdigit(static_cast<unsigned char>(word[digit])) != 0 &&
         word.find_first_of(",;:)", word.size() - 1) == std::string_view::npos;
}

bool IsUnit(std::string_view word) {
  constexpr std::array<std::string_view, 18> kUnits = {
      "%",   "x",   "ns",  "us",   "ms",   "s",       "B",       "KiB",   "MiB",
      "GiB", "TiB", "PiB", "MB/s", "GB/s", "TFLOP/s", "PFLOP/s", "TFLOP", "PFLOP"};
  const size_t end = word.find_last_not_of(".,;:)");
  return end != std::string_view::npos &&
         std::find(kUnits.begin(), kUnits.end(), word.substr(0, end + 1)) != kUnits.end();
}

// Words that are never split over lines: a number with its unit.
std::vector<std::string> Pieces(const std::string& text) {
  std::vector<std::string> pieces;
  bool number = false;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  for (const std::string& word : words) {
    if (number && IsUnit(word)) {
      absl::StrAppend(&pieces.back(), " ", word);
    } else {
      pieces.push_back(word);
    }
    number = IsNumber(word);
  }
  return pieces;
}

// A table's cells, printable, and how wide each column is.
struct Cells {
  std::vector<std::vector<std::string>> lines;  // the header first
  std::vector<size_t> widths;
};

Cells CellsOf(const Table& table) {
  Cells cells{.lines = {table.columns}, .widths = {}};
  cells.lines.insert(cells.lines.end(), table.rows.begin(), table.rows.end());
  cells.widths.assign(table.columns.size(), 0);
  for (auto& line : cells.lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      line[i] = text::Printable(line[i]);
      cells.widths[i] = std::max(cells.widths[i], line[i].size());
    }
  }
  return cells;
}

// Columns are two blanks apart, and the first is one from the edge.
size_t WidthOf(const std::vector<size_t>& widths, const std::vector<size_t>& columns) {
  size_t width = 1;
  for (const size_t column : columns) width += widths[column] + 2;
  return width - 2;
}

// "ncclDevKernel_AllReduce_Sum_f32_RING_LL" -> "ncclDevKer...RING_LL"
std::string Shortened(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  const size_t head = (width - kCutWidth + 1) / 2;
  const size_t tail = width - kCutWidth - head;
  return text::Printable(absl::StrCat(text.substr(0, head), kCut, text.substr(text.size() - tail)));
}

void ShortenColumn(size_t column, size_t width, Cells& cells) {
  width = std::max(width, kShortestText);
  if (cells.widths[column] <= width) return;
  cells.widths[column] = width;
  for (auto& line : cells.lines) line[column] = Shortened(line[column], width);
}

// Where not all columns fit side by side: leaves half of the screen to the first one, and lets each other one
// fit beside it.
void Shorten(const Table& table, size_t most, Cells& cells) {
  std::vector<size_t> all(cells.widths.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (all.empty() || WidthOf(cells.widths, all) <= most) return;
  if (table.left[0]) ShortenColumn(0, most / 2, cells);
  for (size_t i = 1; i < all.size(); ++i) {
    if (table.left[i]) ShortenColumn(i, most - std::min(most, WidthOf(cells.widths, {0}) + 2), cells);
  }
}

// Which columns stand side by side: all, or parts that each begin with the first column.
std::vector<std::vector<size_t>> PartsOf(const std::vector<size_t>& widths, size_t most) {
  std::vector<std::vector<size_t>> parts = {{0}};
  for (size_t i = 1; i < widths.size(); ++i) {
    parts.back().push_back(i);
    if (parts.back().size() > 2 && WidthOf(widths, parts.back()) > most) {
      parts.back().pop_back();
      parts.push_back({0, i});
    }
  }
  return parts;
}

std::string TextOfLine(const Table& table, const Cells& cells, size_t number,
                       const std::vector<size_t>& columns) {
  std::string text;
  for (const size_t column : columns) {
    const std::string& cell = cells.lines[number][column];
    const std::string pad(cells.widths[column] - cell.size(), ' ');
    absl::StrAppend(&text, text.empty() ? " " : "  ", table.left[column] ? "" : pad, cell,
                    table.left[column] ? pad : "");
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace

std::string Layout::Wrap(const std::string& lead, const std::string& indent, const std::string& text,
                         Emphasis emphasis) const {
  const size_t width = std::min(screen_.width, Screen::kReadable);
  struct WrappedLine {
    size_t width = 0;
    std::vector<std::string> pieces;
  };
  std::vector<WrappedLine> lines{{.width = lead.size(), .pieces = {}}};
  for (std::string& piece : Pieces(text::Printable(text))) {
    if (!lines.back().pieces.empty() && lines.back().width + 1 + piece.size() > width)
      lines.push_back({.width = indent.size(), .pieces = {}});
    WrappedLine& line = lines.back();
    line.width += (line.pieces.empty() ? 0 : 1) + piece.size();
    line.pieces.push_back(std::move(piece));
  }
  // No last line of one word: the line before it can spare one.
  if (lines.size() > 1 && lines.back().pieces.size() == 1) {
    WrappedLine& last = lines.back();
    WrappedLine& before = lines[lines.size() - 2];
    if (before.pieces.size() > 2 && last.width + 1 + before.pieces.back().size() <= width) {
      last.pieces.insert(last.pieces.begin(), std::move(before.pieces.back()));
      before.pieces.pop_back();
    }
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i)
    absl::StrAppend(&out, i == 0 ? lead : indent, In(emphasis, absl::StrJoin(lines[i].pieces, " ")), "\n");
  return out;
}

std::string Layout::Lay(const Table& table) const {
  Cells cells = CellsOf(table);
  Shorten(table, screen_.width, cells);
  std::string out;
  for (const std::vector<size_t>& columns : PartsOf(cells.widths, screen_.width)) {
    for (size_t i = 0; i < cells.lines.size(); ++i) {
      const bool marked = i > 0 && table.marked.contains(i - 1);
      const Emphasis emphasis = i == 0 ? Emphasis::kQuiet : marked ? Emphasis::kStrong : Emphasis::kNone;
      absl::StrAppend(&out, In(emphasis, TextOfLine(table, cells, i, columns)), "\n");
    }
  }
  if (!table.note.empty()) absl::StrAppend(&out, Wrap("   (", "    ", table.note + ")", Emphasis::kQuiet));
  return out;
}

std::string Layout::FirstLine(const std::string& indent, const std::string& text) const {
  return screen_.is_terminal ? Wrap("", indent, text) : text::Printable(text) + "\n";
}

std::string Layout::In(Emphasis emphasis, std::string_view text) const {
  constexpr std::array<std::string_view, 5> kCodes = {"", "1", "1;31", "1;33", "2"};
  const std::string_view code = kCodes[static_cast<size_t>(emphasis)];
  if (!screen_.colors || code.empty() || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", std::string(code), "m", std::string(text), "\x1b[0m");
}

}  // namespace gpuprobe::render
