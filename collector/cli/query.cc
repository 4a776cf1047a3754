#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/given_run.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/query_tables.h"
#include "collector/cli/run_tables.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/statements.h"
#include "collector/tables/column_meanings.h"
#include "collector/tables/csv_files.h"
#include "collector/tables/database.h"
#include "collector/tables/views.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {
namespace {

constexpr char kQuery[] = "query";
constexpr char kNeedsSelect[] = "needs a SELECT, or --schema";
constexpr char kTables[] =
    "SELECT m.type AS type, m.name AS name, $0 AS columns FROM sqlite_schema AS m, "
    "pragma_table_info(m.name) AS c WHERE m.type IN ('table', 'view') GROUP BY m.type, m.name ORDER BY "
    "m.type, m.name";
constexpr char kColumns[] = "SELECT name, type FROM pragma_table_info('$0')";

using Row = std::vector<std::string>;

bool IsNumber(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("+-.0123456789e") == std::string::npos;
}

constexpr size_t kLeastCell = 24;

// Between whole characters of UTF-8.
std::string Shortened(const std::string& cell, size_t width) {
  constexpr std::string_view kGap = "...";
  if (cell.size() <= width) return cell;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(cell[at]) & 0xc0) == 0x80; };
  size_t begin = (width - kGap.size() + 1) / 2;
  size_t end = cell.size() - (width - kGap.size()) / 2;
  while (begin > 0 && continues(begin)) --begin;
  while (end < cell.size() && continues(end)) ++end;
  return absl::StrCat(cell.substr(0, begin), "...", cell.substr(end));
}

// On a terminal, lines that fit it where that leaves kLeastCell of each cell: kernels' names may be longer
// than any screen.
void FitScreen(std::vector<Row>& rows) {
  if (isatty(STDOUT_FILENO) == 0) return;
  const size_t columns = rows.front().size();
  std::vector<size_t> widths(columns);
  for (const Row& row : rows) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto screen = static_cast<size_t>(ScreenOf(STDOUT_FILENO, true).width);
  const auto total = [&] { return std::accumulate(widths.begin(), widths.end(), 2 * (columns - 1)); };
  while (total() > screen) {
    size_t& widest = *std::max_element(widths.begin(), widths.end());
    if (widest <= kLeastCell) break;
    --widest;
  }
  for (Row& row : rows) {
    for (size_t i = 0; i < columns; ++i) row[i] = Shortened(row[i], widths[i]);
  }
}

// Columns as wide as what is in them; numbers to the right.
std::string TableText(std::vector<Row> rows) {
  FitScreen(rows);
  std::vector<size_t> widths(rows.front().size());
  std::vector<bool> numbers(rows.front().size(), rows.size() > 1);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
      if (&row != &rows.front() && !row[i].empty() && !IsNumber(row[i])) numbers[i] = false;
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", numbers[i] ? space : row[i], numbers[i] ? row[i] : space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string JsonLine(const Row& names, const tables::Database::Cells& cells) {
  nlohmann::ordered_json object;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string cell = cells[i] == nullptr ? "" : cells[i];
    if (cells[i] == nullptr) {
      object[names[i]] = nullptr;
    } else if (IsNumber(cell) && nlohmann::json::accept(cell)) {
      object[names[i]] = nlohmann::ordered_json::parse(cell);
    } else {
      object[names[i]] = cell;
    }
  }
  return text::SafeJson(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
}

absl::Status PrintResult(tables::Database& database, const std::string& sql, const std::string& format) {
  std::vector<Row> rows;  // for a table, whose widths depend on all of them
  Row names;
  absl::Status status = database.Query(sql, [&](const tables::Database::Cells& cells) {
    Row row;
    for (const char* cell : cells) row.emplace_back(cell == nullptr ? "" : cell);
    if (names.empty()) {
      names = row;
      if (format == "jsonl") return;
    } else if (format == "jsonl") {
      if (OutputWorks()) Print(JsonLine(names, cells));
      return;
    }
    if (format == "csv") {
      if (OutputWorks()) Print(tables::CsvLine(row));
    } else {
      std::transform(row.begin(), row.end(), row.begin(), text::Printable);
      rows.push_back(std::move(row));
    }
  });
  if (status.ok() && !rows.empty()) Print(TableText(std::move(rows)));
  return status;
}

// How many columns each table has, or, for programs, which.
std::string TablesSql(const std::string& format) {
  return absl::Substitute(kTables, format == "table" ? "count(*)" : "group_concat(c.name, ', ')");
}

void PrintRows(const std::vector<Row>& rows, const std::string& format) {
  if (format == "table") return Print(TableText(rows));
  for (const Row& row : rows) {
    tables::Database::Cells cells;
    for (const std::string& cell : row) cells.push_back(cell.c_str());
    if (format == "csv") {
      Print(tables::CsvLine(row));
    } else if (&row != &rows.front()) {
      Print(JsonLine(rows.front(), cells));
    }
  }
}

std::vector<std::string> NamesIn(tables::Database& database, const std::string& sql) {
  std::vector<std::string> names;
  bool head = true;
  database
      .Query(sql,
             [&](const tables::Database::Cells& cells) {
               if (!std::exchange(head, false)) names.emplace_back(cells.front());
             })
      .IgnoreError();
  return names;
}

std::vector<std::string> TableNames(tables::Database& database) {
  return NamesIn(database, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')");
}

absl::Status PrintColumns(tables::Database& database, const std::string& table, const std::string& format) {
  const std::vector<std::string> tables = TableNames(database);
  if (std::find(tables.begin(), tables.end(), table) == tables.end()) {
    return absl::NotFoundError(
        absl::StrCat("no table ", table, DidYouMean(table, tables), "; --schema alone prints all of them"));
  }
  std::vector<Row> rows = {{"column", "type", "meaning"}};
  bool head = true;
  absl::Status status =
      database.Query(absl::Substitute(kColumns, table), [&](const tables::Database::Cells& cells) {
        if (std::exchange(head, false)) return;
        rows.push_back({cells[0], cells[1], tables::MeaningOf(table, cells[0])});
      });
  if (status.ok()) PrintRows(rows, format);
  return status;
}

bool HasWord(const std::string& sql, const std::string& word) {
  const auto continues = [&](size_t at) {
    return at < sql.size() && (absl::ascii_isalnum(static_cast<unsigned char>(sql[at])) || sql[at] == '_');
  };
  const std::string lower = absl::AsciiStrToLower(sql);
  for (size_t at = lower.find(word); at != std::string::npos; at = lower.find(word, at + 1)) {
    if ((at == 0 || !continues(at - 1)) && !continues(at + word.size())) return true;
  }
  return false;
}

// What the statement gets wrong about tables that every run has, before anything is read. Which tables the
// report has depends on the run.
absl::Status CheckStatement(const std::string& sql) {
  absl::StatusOr<std::unique_ptr<tables::Database>> empty = tables::Database::Create("");
  if (!empty.ok()) return absl::OkStatus();
  for (const tables::Table& table : KnownTables()) (*empty)->AddTable(table);
  if (!(*empty)->Finish().ok()) return absl::OkStatus();
  absl::Status status = (*empty)->Check(sql);
  if (status.ok() || absl::StrContains(status.message(), "no such table")) return absl::OkStatus();
  const absl::string_view column = absl::StripPrefix(status.message(), "no such column: ");
  if (column.size() == status.message().size()) return status;
  std::vector<std::string> columns;
  std::string has;
  for (const std::string& table : TableNames(**empty)) {
    if (!HasWord(sql, table)) continue;
    const std::vector<std::string> own = NamesIn(**empty, absl::Substitute(kColumns, table));
    absl::StrAppend(&has, "; ", table, " has ", absl::StrJoin(own, ", "));
    columns.insert(columns.end(), own.begin(), own.end());
  }
  const std::string name(column.substr(column.rfind('.') + 1));  // of "table.column", too
  return absl::InvalidArgumentError(absl::StrCat(status.message(), DidYouMean(name, columns), has));
}

// Answers each statement on standard input. A wrong one ends that, unless a person types them and can try
// again.
int AnswerAll(tables::Database& database, const std::string& format) {
  if (AreTyped())
    Print(
        "One SELECT a question, ended by a semicolon; Ctrl-D ends. gpuprobe query --schema lists the "
        "tables.\n");
  int code = kDone;
  const int asked = ForEachStatement([&](const std::string& sql) {
    absl::Status status = CheckStatement(sql);
    if (status.ok()) status = PrintResult(database, sql, format);
    if (!status.ok()) code = Fail(kQuery, status, kFailed);
    return OutputWorks() && (status.ok() || AreTyped());
  });
  if (asked == 0 && !AreTyped()) return Fail(kQuery, kNeedsSelect, kUsage);
  return AreTyped() ? kDone : code;
}

// The only argument is the statement, and the run is the newest one.
bool LooksLikeSql(const std::string& text) {
  std::error_code error;
  return text.find(' ') != std::string::npos && !std::filesystem::exists(text, error);
}

}  // namespace

int QueryMain(const Arguments& arguments) {
  CLI::App app(
      "Answers questions about a recorded run in SQL (docs/sql.md describes the tables and has examples)",
      "gpuprobe query");
  std::string given;
  std::string sql;
  std::string format = "table";
  std::string table;
  StepMarkerOption marker;
  app.add_option("DIR", given, kGivenRun);
  auto* statement =
      app.add_option("SQL", sql, "one SELECT [asks for them, or reads them from standard input]")
          ->check(NotEmpty());
  app.add_option("--format", format, "table, csv or jsonl [table]")->check(OneOf({"table", "csv", "jsonl"}));
  const auto* schema =
      app.add_option("--schema", table, "print the tables and views, or what the columns of this one are")
          ->type_name("[TABLE]")
          ->expected(0, 1)
          ->excludes(statement);
  HubOption hub;
  hub.AddTo(app);
  marker.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  const bool asks_schema = schema->count() > 0;
  if (sql.empty() && !asks_schema && LooksLikeSql(given)) std::swap(given, sql);
  const bool asks_many = sql.empty() && !asks_schema;
  if (!asks_schema && !asks_many) {
    if (absl::Status s = CheckStatement(sql); !s.ok()) return Fail(kQuery, s, kFailed);
  }
  if (absl::Status s = hub.Resolve(given); !s.ok()) return Fail(kQuery, s, kFailed);
  const absl::StatusOr<GivenRun> run = GivenRun::Open(given);
  if (!run.ok()) return Fail(kQuery, run.status(), kFailed);
  const Progress progress({run->directory()});
  marker.TakeFrom(run->directory());
  absl::StatusOr<std::unique_ptr<tables::Database>> database =
      asks_schema ? tables::Database::Create("") : OpenTables(kQuery, *run, marker);
  if (!database.ok()) return Fail(kQuery, database.status(), kFailed);
  if (asks_schema) {
    if (absl::Status s = FillTables(kQuery, *run, marker, **database, Rows::kNone).status(); !s.ok())
      return Fail(kQuery, s, kFailed);
  }
  if (asks_many) return AnswerAll(**database, format);
  const absl::Status status = !asks_schema    ? PrintResult(**database, sql, format)
                              : table.empty() ? PrintResult(**database, TablesSql(format), format)
                                              : PrintColumns(**database, table, format);
  return status.ok() ? kDone : Fail(kQuery, status, kFailed);
}

}  // namespace gpuprobe::cli
