#include "collector/tables/csv_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "collector/text/characters.h"

namespace gpuprobe::tables {

namespace {

bool IsCsvNumber(const std::string& cell) {
  double ignored = 0;
  return cell.find_first_not_of("+-.0123456789eE") == std::string::npos && absl::SimpleAtod(cell, &ignored);
}

// A cell that a spreadsheet would take for a formula (wide forms included) gets an apostrophe in front, which
// makes it text. Terminal control characters are replaced.
std::string CsvCell(const std::string& text) {
  std::string cell = text::Printable(text);
  const size_t first = cell.find_first_not_of(' ');
  if (first == std::string::npos || IsCsvNumber(cell)) return cell;
  const std::string_view rest = std::string_view(cell).substr(first);
  for (const std::string_view begin :
       {"=", "+", "-", "@", "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0"}) {
    if (rest.starts_with(begin)) return "'" + cell;
  }
  // A tab or an end of line, which were replaced.
  if (text.front() == '\t' || text.front() == '\r' || text.front() == '\n') return "'" + cell;
  return cell;
}

}  // namespace

std::string CsvLine(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& each : cells) {
    if (&each != &cells.front()) line.push_back(',');
    const std::string cell = CsvCell(each);
    if (cell.find_first_of(",;\"") == std::string::npos) {
      line += cell;
    } else {
      absl::StrAppend(&line, "\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
    }
  }
  line += "\r\n";
  return line;
}

void CsvFiles::Write(File& file, const std::vector<std::string>& cells) {
  const std::string line = CsvLine(cells);
  if (std::fwrite(line.data(), 1, line.size(), file.file.get()) != line.size())
    status_ = absl::UnavailableError(absl::StrCat(folder_, ": ", std::strerror(errno)));
}

void CsvFiles::Insert(std::string_view row) {
  if (!status_.ok() || !SplitRow(row, fields_) || fields_.empty()) return;
  const std::string kind = TextOf(fields_.front().value);
  File& file = files_[kind];
  const std::vector<Column>& columns = file.table.columns;
  std::vector<std::string> cells(columns.size());
  if (file.file == nullptr) {
    const std::string path = absl::StrCat(folder_, "/", kind, ".csv");
    const absl::StatusOr<int> fd = open_(path);
    if (fd.ok()) file.file.reset(fdopen(*fd, "wb"));
    if (file.file == nullptr) {
      status_ =
          fd.ok() ? absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno))) : fd.status();
      return;
    }
    std::transform(columns.begin(), columns.end(), cells.begin(), [](const Column& c) { return c.name; });
    Write(file, cells);
    std::fill(cells.begin(), cells.end(), "");
  }
  for (const Field& field : fields_) {
    const auto column =
        std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == field.key; });
    if (column != columns.end()) cells[static_cast<size_t>(column - columns.begin())] = TextOf(field.value);
  }
  Write(file, cells);
}

absl::Status CsvFiles::Finish() {
  for (auto& [name, file] : files_) {
    if (file.file != nullptr && std::fflush(file.file.get()) != 0 && status_.ok())
      status_ = absl::UnavailableError(absl::StrCat(folder_, ": ", std::strerror(errno)));
  }
  return status_;
}

}  // namespace gpuprobe::tables
