#include "collector/render/text_layout.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace gpuprobe::render {
namespace {

constexpr size_t kWidth = 118;

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

// Length of the UTF-8 character that `text` begins with; 0: it begins with none. `code` is its code point.
size_t CharacterAt(std::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t size = first < 0x80         ? 1
                      : first >> 5 == 0x6  ? 2
                      : first >> 4 == 0xe  ? 3
                      : first >> 3 == 0x1e ? 4
                                           : 0;
  if (size == 0 || size > text.size()) return 0;
  code = size == 1 ? first : first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= kLeast[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? size : 0;
}

// Terminals obey control characters (also the 8-bit ones), and turn text around at these marks.
bool IsObeyed(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t size = CharacterAt(text, code);
    const size_t taken = std::max<size_t>(size, 1);
    if (size == 0 || IsObeyed(code)) {
      out.push_back('?');
    } else {
      out.append(text.substr(0, size));
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string Wrap(const std::string& lead, const std::string& indent, const std::string& text) {
  struct Line {
    size_t width = 0;
    std::vector<std::string> pieces;
  };
  std::vector<Line> lines{{.width = lead.size(), .pieces = {}}};
  for (std::string& piece : Pieces(Printable(text))) {
    if (!lines.back().pieces.empty() && lines.back().width + 1 + piece.size() > kWidth)
      lines.push_back({.width = indent.size(), .pieces = {}});
    Line& line = lines.back();
    line.width += (line.pieces.empty() ? 0 : 1) + piece.size();
    line.pieces.push_back(std::move(piece));
  }
  // No last line of one word: the line before it can spare one.
  if (lines.size() > 1 && lines.back().pieces.size() == 1) {
    Line& last = lines.back();
    Line& before = lines[lines.size() - 2];
    if (before.pieces.size() > 2 && last.width + 1 + before.pieces.back().size() <= kWidth) {
      last.pieces.insert(last.pieces.begin(), std::move(before.pieces.back()));
      before.pieces.pop_back();
    }
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i)
    absl::StrAppend(&out, i == 0 ? lead : indent, absl::StrJoin(lines[i].pieces, " "), "\n");
  return out;
}

std::string Lay(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(column.size());
  std::vector<std::vector<std::string>> rows = table.rows;
  for (auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = Printable(row[i]);
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string pad(widths[i] - cells[i].size(), ' ');
      absl::StrAppend(&text, i == 0 ? " " : "  ", table.left[i] ? "" : pad, cells[i],
                      table.left[i] ? pad : "");
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text + "\n";
  };
  std::string out = line(table.columns);
  for (const auto& row : rows) absl::StrAppend(&out, line(row));
  if (!table.note.empty()) absl::StrAppend(&out, Wrap("   (", "    ", table.note + ")"));
  return out;
}

}  // namespace gpuprobe::render
