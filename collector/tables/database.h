// A run as an SQLite database: tables of records, steps and the report, and views for common questions.
//
// Written in one transaction; errors are kept, and reported by Finish.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/tables/row_text.h"
#include "collector/tables/table_schema.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gpuprobe::tables {

class Database {
 public:
  // Creates the file, which must not exist; empty: a temporary database that vanishes when it is closed.
  static absl::StatusOr<std::unique_ptr<Database>> Create(const std::string& path);
  // One that Create and Finish made. NotFound if there is none, or it is unfinished.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void AddTable(const Table& table);
  // Into the table that the row's kind names, which is made or widened if need be.
  void Insert(std::string_view row);
  // Makes the views and indexes, and ends the transaction.
  absl::Status Finish();

  // Whether the statement fits the tables and views; nothing is read. InvalidArgument says what is wrong.
  absl::Status Check(const std::string& sql) const;
  // Whether a statement ends here: with a semicolon that is in no string and no comment.
  static bool IsComplete(const std::string& sql);
  // Calls `row` for the names of the result's columns and for each of its rows; nullptr is NULL. The
  // statement must not change anything. InvalidArgument says what is wrong with it.
  using Cells = std::vector<const char*>;
  absl::Status Query(const std::string& sql, const std::function<void(const Cells& cells)>& row);

 private:
  struct Target {
    Table table;
    sqlite3_stmt* insert = nullptr;
  };
  explicit Database(sqlite3* handle) : handle_(handle) {}
  void Run(const std::string& sql);
  void Prepare(Target& target);
  void Bind(sqlite3_stmt* statement, int at, std::string_view value) const;
  absl::Status Trouble() const;
  using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;
  absl::StatusOr<Statement> PrepareOne(const std::string& sql) const;

  sqlite3* handle_;
  std::map<std::string, Target, std::less<>> targets_;
  std::vector<Field> fields_;
  absl::Status status_;
};

}  // namespace gpuprobe::tables
