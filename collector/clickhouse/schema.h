// The tables of a database, as numbered migrations that only add: new tables and new columns, derived from
// the declarations of the rows.
//
// A migration that was released never changes (tests/collector/clickhouse/migrations.sql). A column that is
// added later names its migration (Since), a table too; whoever reads with SQL finds what was there before
// under the same name.
#pragma once

#include <string>
#include <vector>

#include "collector/clickhouse/columns.h"

namespace gpuprobe::clickhouse {

struct Layout {
  std::string database = "gpuprobe";
  // Of ClickHouse's own cluster definitions: its tables are made on all servers, and replicated. Empty: one
  // server.
  std::string replicas = {};
};

struct Migration {
  int number = 0;
  std::vector<std::string> statements;
};

inline constexpr int kNewestMigration = 1;

// All of them, in order.
std::vector<Migration> Migrations(const Layout& layout);
// "SELECT max(number) ..." of the migrations that a database has.
std::string AppliedSql(const Layout& layout);
// That this migration was applied.
std::string NoteAppliedSql(const Layout& layout, int number, const std::string& version);

struct TableFacts {
  std::string name;
  std::string meaning;
  std::string order;
  std::string version;  // column of which the highest counts; empty: all rows count
  int days = 0;         // how long a row is kept
  std::vector<Column> columns;
};
std::vector<TableFacts> Tables();

// For an administrator: a row policy by which each user of the server reads the rows of the hub's user of the
// same name, `all_rows` (users or roles, separated by commas) all, and a role that reads the tables.
std::vector<std::string> PolicySql(const Layout& layout, const std::string& all_rows);

}  // namespace gpuprobe::clickhouse
