#include "collector/tables/database.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/tables/views.h"

namespace gpuprobe::tables {
namespace {

const char* TypeName(ValueType type) {
  switch (type) {
    case ValueType::kInteger:
      return "INTEGER";
    case ValueType::kReal:
      return "REAL";
    default:
      return "TEXT";
  }
}

std::string Quoted(const std::string& name) { return absl::StrCat("\"", name, "\""); }

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Create(const std::string& path) {
  std::error_code error;
  // A dangling link counts as existing, too.
  if (!path.empty() && std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    return absl::AlreadyExistsError(absl::StrCat(path, " exists; choose another file"));
  sqlite3* handle = nullptr;
  const int opened = sqlite3_open_v2(
      path.c_str(), &handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | (path.empty() ? 0 : SQLITE_OPEN_NOFOLLOW), nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (opened != SQLITE_OK) return absl::UnavailableError(absl::StrCat(path, ": ", sqlite3_errmsg(handle)));
  // The file is new and ours: if we are interrupted it is of no use anyway.
  database->Run("PRAGMA journal_mode = OFF");
  database->Run("PRAGMA synchronous = OFF");
  database->Run("BEGIN");
  if (!database->status_.ok()) return database->status_;
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int opened =
      sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  // What Finish writes last.
  if (opened != SQLITE_OK || !database->Check(absl::StrCat("SELECT * FROM ", Views().back().name)).ok())
    return absl::NotFoundError(path);
  return database;
}

Database::~Database() {
  for (auto& [name, target] : targets_) sqlite3_finalize(target.insert);
  sqlite3_close(handle_);
}

absl::Status Database::Trouble() const { return absl::UnavailableError(sqlite3_errmsg(handle_)); }

void Database::Run(const std::string& sql) {
  if (status_.ok() && sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    status_ = Trouble();
}

void Database::AddTable(const Table& table) {
  std::string columns;
  for (const Column& column : table.columns)
    absl::StrAppend(&columns, columns.empty() ? "" : ", ", Quoted(column.name), " ", TypeName(column.type));
  Run(absl::StrCat("CREATE TABLE ", Quoted(table.name), " (", columns, ")"));
  targets_[table.name].table = table;
}

void Database::Prepare(Target& target) {
  std::string places;
  for (size_t i = 0; i < target.table.columns.size(); ++i) absl::StrAppend(&places, i == 0 ? "?" : ", ?");
  const std::string sql = absl::StrCat("INSERT INTO ", Quoted(target.table.name), " VALUES (", places, ")");
  sqlite3_finalize(target.insert);
  target.insert = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &target.insert, nullptr) != SQLITE_OK) status_ = Trouble();
}

void Database::Bind(sqlite3_stmt* statement, int at, std::string_view value) const {
  int64_t integer = 0;
  double real = 0;
  const absl::string_view text(value.data(), value.size());
  switch (TypeOf(value)) {
    case ValueType::kNone:
      sqlite3_bind_null(statement, at);
      return;
    case ValueType::kInteger:
      if (value == "true" || value == "false") {
        sqlite3_bind_int(statement, at, value == "true" ? 1 : 0);
        return;
      }
      if (absl::SimpleAtoi(text, &integer)) {
        sqlite3_bind_int64(statement, at, integer);
        return;
      }
      break;  // larger than SQLite's integers: kept as text
    case ValueType::kReal:
      if (absl::SimpleAtod(text, &real)) {
        sqlite3_bind_double(statement, at, real);
        return;
      }
      break;
    default:
      break;
  }
  const std::string unquoted = TextOf(value);
  sqlite3_bind_text(statement, at, unquoted.data(), static_cast<int>(unquoted.size()), SQLITE_TRANSIENT);
}

void Database::Insert(std::string_view row) {
  if (!status_.ok() || !SplitRow(row, fields_) || fields_.empty() || fields_.front().key != kKind) return;
  const std::string kind = TextOf(fields_.front().value);
  auto found = targets_.find(kind);
  if (found == targets_.end()) {
    std::vector<Table> made;
    Widen(row, made);
    AddTable(made.front());
    found = targets_.find(kind);
  }
  Target& target = found->second;
  if (target.insert == nullptr) Prepare(target);
  if (!status_.ok()) return;
  std::vector<Column>& columns = target.table.columns;
  sqlite3_reset(target.insert);
  sqlite3_clear_bindings(target.insert);
  size_t next = 0;  // fields mostly come in the order of the columns
  for (size_t i = 1; i < fields_.size(); ++i) {
    const Field& field = fields_[i];
    if (next >= columns.size() || !IsSameColumn(columns[next].name, field.key)) {
      next =
          static_cast<size_t>(std::find_if(columns.begin(), columns.end(),
                                           [&](const Column& c) { return IsSameColumn(c.name, field.key); }) -
                              columns.begin());
    }
    if (next == columns.size()) {
      const Column added{.name = std::string(field.key), .type = TypeOf(field.value)};
      Run(absl::StrCat("ALTER TABLE ", Quoted(kind), " ADD COLUMN ", Quoted(added.name), " ",
                       TypeName(added.type)));
      columns.push_back(added);
      Prepare(target);
      return Insert(row);
    }
    Bind(target.insert, static_cast<int>(next) + 1, field.value);
    ++next;
  }
  if (sqlite3_step(target.insert) != SQLITE_DONE) status_ = Trouble();
  sqlite3_reset(target.insert);
}

absl::Status Database::Finish() {
  for (const View& view : Views()) Run(absl::StrCat("CREATE VIEW ", view.name, " AS ", view.sql));
  for (const char* index : Indexes()) Run(index);
  Run("COMMIT");
  return status_;
}

absl::StatusOr<Database::Statement> Database::PrepareOne(const std::string& sql) const {
  sqlite3_stmt* statement = nullptr;
  const char* rest = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, &rest) != SQLITE_OK)
    return absl::InvalidArgumentError(sqlite3_errmsg(handle_));
  Statement owned(statement, sqlite3_finalize);
  if (statement == nullptr) return absl::InvalidArgumentError("an empty statement");
  if (std::string_view(rest).find_first_not_of(" \t\r\n;") != std::string_view::npos)
    return absl::InvalidArgumentError("one statement at a time");
  if (sqlite3_stmt_readonly(statement) == 0)
    return absl::InvalidArgumentError("only SELECT: a run is not changed");
  return owned;
}

bool Database::IsComplete(const std::string& sql) { return sqlite3_complete(sql.c_str()) != 0; }

absl::Status Database::Check(const std::string& sql) const { return PrepareOne(sql).status(); }

absl::Status Database::Query(const std::string& sql, const std::function<void(const Cells& cells)>& row) {
  absl::StatusOr<Statement> prepared = PrepareOne(sql);
  if (!prepared.ok()) return prepared.status();
  sqlite3_stmt* const statement = prepared->get();
  const int columns = sqlite3_column_count(statement);
  Cells cells(static_cast<size_t>(columns));
  for (int i = 0; i < columns; ++i) cells[static_cast<size_t>(i)] = sqlite3_column_name(statement, i);
  row(cells);
  while (true) {
    const int step = sqlite3_step(statement);
    if (step == SQLITE_DONE) return absl::OkStatus();
    if (step != SQLITE_ROW) return absl::InvalidArgumentError(sqlite3_errmsg(handle_));
    for (int i = 0; i < columns; ++i)
      cells[static_cast<size_t>(i)] = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
    row(cells);
  }
}

}  // namespace gpuprobe::tables
