#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/given_run.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/run_tables.h"
#include "collector/cli/shared_options.h"
#include "collector/tables/csv_files.h"
#include "collector/tables/database.h"
#include "collector/tables/views.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {
namespace {

constexpr char kQuery[] = "query";
constexpr char kSchema[] =
    "SELECT m.type AS type, m.name AS name, group_concat(c.name, ', ') AS columns FROM sqlite_schema AS m, "
    "pragma_table_info(m.name) AS c WHERE m.type IN ('table', 'view') GROUP BY m.type, m.name ORDER BY "
    "m.type, m.name";

using Row = std::vector<std::string>;

bool IsNumber(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("+-.0123456789e") == std::string::npos;
}

// Columns as wide as what is in them; numbers to the right.
std::string TableText(const std::vector<Row>& rows) {
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
  if (status.ok() && !rows.empty()) Print(TableText(rows));
  return status;
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
  bool schema = false;
  StepMarkerOption marker;
  app.add_option("DIR", given, kGivenRun);
  auto* statement = app.add_option("SQL", sql, "one SELECT")->check(NotEmpty());
  app.add_option("--format", format, "table, csv or jsonl")->check(OneOf({"table", "csv", "jsonl"}));
  app.add_flag("--schema", schema, "print the tables, views and their columns")->excludes(statement);
  marker.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (sql.empty() && !schema && LooksLikeSql(given)) std::swap(given, sql);
  if (sql.empty() && !schema) return Fail(kQuery, "needs a SELECT, or --schema", kUsage);
  const absl::StatusOr<GivenRun> run = GivenRun::Open(given);
  if (!run.ok()) return Fail(kQuery, run.status(), kFailed);
  const Progress progress({run->directory()});
  marker.TakeFrom(run->directory());
  absl::StatusOr<std::unique_ptr<tables::Database>> database = tables::Database::Create("");
  if (!database.ok()) return Fail(kQuery, database.status(), kFailed);
  if (absl::Status s = FillTables(kQuery, *run, marker, **database); !s.ok()) return Fail(kQuery, s, kFailed);
  const absl::Status status = PrintResult(**database, schema ? kSchema : sql, format);
  return status.ok() ? kDone : Fail(kQuery, status, kFailed);
}

}  // namespace gpuprobe::cli
