#include "collector/render/text_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gpuprobe::render {
namespace {

constexpr size_t kWidth = 118;

}  // namespace

std::string Wrap(const std::string& lead, const std::string& indent, const std::string& text) {
  std::string out;
  std::string line = lead;
  bool fresh = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!fresh && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&out, line, "\n");
      line = indent;
      fresh = true;
    }
    absl::StrAppend(&line, fresh ? "" : " ", word);
    fresh = false;
    at = end + 1;
  }
  absl::StrAppend(&out, line, "\n");
  return out;
}

std::string Lay(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(column.size());
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
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
  for (const auto& row : table.rows) absl::StrAppend(&out, line(row));
  if (!table.note.empty()) absl::StrAppend(&out, Wrap("   (", "    ", table.note + ")"));
  return out;
}

}  // namespace gpuprobe::render
