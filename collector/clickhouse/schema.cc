#include "collector/clickhouse/schema.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "collector/clickhouse/rows.h"

namespace gpuprobe::clickhouse {
namespace {

constexpr char kReaders[] = "gpuprobe_readers";
constexpr const char* kStepSums[] = {"step_minutes", "step_hours"};
constexpr char kApplied[] = "schema_migrations";
// Parts of a longer-lived table are months.
constexpr int kDailyParts = 100;  // days
// Repeated inserts are known by their token among the last so many.
constexpr int kRemembered = 1000;

std::string Literal(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string OnReplicas(const Layout& layout) {
  return layout.replicas.empty() ? "" : absl::StrCat(" ON CLUSTER ", layout.replicas);
}

// `engine`: "ReplacingMergeTree"; `arguments`: "updated".
std::string Engine(const Layout& layout, const std::string& engine, const std::string& table,
                   const std::string& arguments = "") {
  if (layout.replicas.empty())
    return absl::StrCat(engine, arguments.empty() ? "" : "(", arguments, arguments.empty() ? "" : ")");
  return absl::StrCat("Replicated", engine, "('/clickhouse/tables/{shard}/", layout.database, "/", table,
                      "', '{replica}'", arguments.empty() ? "" : ", ", arguments, ")");
}

std::string Settings(const Layout& layout) {
  return absl::StrCat(
      "SETTINGS ttl_only_drop_parts = 1, ",
      layout.replicas.empty() ? "non_replicated_deduplication_window" : "replicated_deduplication_window",
      " = ", kRemembered);
}

std::string Definition(const Column& column) {
  return absl::StrCat("`", column.name, "` ", column.type, " CODEC(", column.codec, ") COMMENT ",
                      Literal(column.meaning));
}

template <typename Row>
std::string CreateTable(const Layout& layout) {
  const std::string table = Row::kTable;
  std::vector<std::string> columns;
  for (const Column& column : ColumnsOf<Row>()) {
    if (column.since == 0) columns.push_back(absl::StrCat("  ", Definition(column)));
  }
  const std::string version = Row::kVersion;
  return absl::StrCat("CREATE TABLE IF NOT EXISTS ", layout.database, ".", table, OnReplicas(layout), "\n(\n",
                      absl::StrJoin(columns, ",\n"), "\n)\nENGINE = ",
                      Engine(layout, version.empty() ? "MergeTree" : "ReplacingMergeTree", table, version),
                      "\nPARTITION BY ", Row::kDays > kDailyParts ? "toYYYYMM(" : "toYYYYMMDD(", Row::kDay,
                      ")\nORDER BY (", Row::kOrder, ")\nTTL toDateTime(", Row::kDay, ") + INTERVAL ",
                      Row::kDays, " DAY\n", Settings(layout), "\nCOMMENT ", Literal(Row::kMeaning));
}

// Steps of a rank in a minute or an hour. Counted as they are inserted; those that are counted anew later
// have another revision.
std::vector<std::string> StepSums(const Layout& layout, const std::string& table, const std::string& start,
                                  int days) {
  const char* const sums[] = {"total_ns",      "compute_ns",    "exposed_comm_ns", "copy_ns",
                              "host_bound_ns", "input_wait_ns", "sync_ns",         "memory_ns",
                              "pause_ns",      "launch_gap_ns", "unknown_ns"};
  const std::string key = "cluster, job, attempt, user, revision, time, host, rank, device";
  std::vector<std::string> columns = {"`cluster` LowCardinality(String)",
                                      "`job` LowCardinality(String)",
                                      "`attempt` UInt16",
                                      "`user` LowCardinality(String)",
                                      "`revision` UInt32",
                                      "`time` DateTime('UTC') CODEC(Delta, ZSTD(1))",
                                      "`host` LowCardinality(String)",
                                      "`rank` Int32",
                                      "`device` Int32",
                                      "`steps` SimpleAggregateFunction(sum, UInt64)"};
  std::vector<std::string> values = {"count() AS steps"};
  for (const char* const sum : sums) {
    columns.push_back(absl::StrCat("`", sum, "` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))"));
    values.push_back(absl::StrCat("sum(steps.", sum, ") AS ", sum));
  }
  for (const std::string end : {"min", "max"}) {
    columns.push_back(
        absl::StrCat("`", end, "_total_ns` SimpleAggregateFunction(", end, ", UInt64) CODEC(T64, ZSTD(1))"));
    values.push_back(absl::StrCat(end, "(steps.total_ns) AS ", end, "_total_ns"));
  }
  columns.emplace_back("`total_ns_quantiles` AggregateFunction(quantilesTDigest(0.5, 0.99), UInt64)");
  values.emplace_back("quantilesTDigestState(0.5, 0.99)(steps.total_ns) AS total_ns_quantiles");
  return {absl::StrCat("CREATE TABLE IF NOT EXISTS ", layout.database, ".", table, OnReplicas(layout),
                       "\n(\n  ", absl::StrJoin(columns, ",\n  "),
                       "\n)\nENGINE = ", Engine(layout, "AggregatingMergeTree", table),
                       "\nPARTITION BY toYYYYMM(time)\nORDER BY (", key, ")\nTTL time + INTERVAL ", days,
                       " DAY\n", Settings(layout)),
          absl::StrCat("CREATE MATERIALIZED VIEW IF NOT EXISTS ", layout.database, ".", table, "_view",
                       OnReplicas(layout), " TO ", layout.database, ".", table,
                       " AS\nSELECT cluster, job, attempt, user, revision, ", start,
                       "(start) AS time, host, rank, device,\n  ", absl::StrJoin(values, ",\n  "), "\nFROM ",
                       layout.database, ".steps\nWHERE NOT warmup AND NOT incomplete\nGROUP BY ", key)};
}

}  // namespace

std::vector<Migration> Migrations(const Layout& layout) {
  std::vector<Migration> migrations;
  Migration& first = migrations.emplace_back();
  first.number = 1;
  first.statements.push_back(
      absl::StrCat("CREATE DATABASE IF NOT EXISTS ", layout.database, OnReplicas(layout)));
  first.statements.push_back(absl::StrCat(
      "CREATE TABLE IF NOT EXISTS ", layout.database, ".", kApplied, OnReplicas(layout),
      "\n(\n  `number` UInt32,\n  `applied` DateTime('UTC') DEFAULT now(),\n  `version` String\n)\nENGINE = ",
      Engine(layout, "MergeTree", kApplied), "\nORDER BY number"));
  ForEachTable(
      [&](const auto& row) { first.statements.push_back(CreateTable<std::decay_t<decltype(row)>>(layout)); });
  for (const auto& [table, start, days] :
       {std::tuple(kStepSums[0], "toStartOfMinute", 90), std::tuple(kStepSums[1], "toStartOfHour", 730)}) {
    for (std::string& statement : StepSums(layout, table, start, days))
      first.statements.push_back(std::move(statement));
  }
  for (int number = 2; number <= kNewestMigration; ++number) {
    Migration& next = migrations.emplace_back();
    next.number = number;
    for (const TableFacts& table : Tables()) {
      for (const Column& column : table.columns) {
        if (column.since == number)
          next.statements.push_back(absl::StrCat("ALTER TABLE ", layout.database, ".", table.name,
                                                 OnReplicas(layout), " ADD COLUMN IF NOT EXISTS ",
                                                 Definition(column)));
      }
    }
  }
  return migrations;
}

std::string AppliedSql(const Layout& layout) {
  return absl::StrCat("SELECT max(number) FROM ", layout.database, ".", kApplied);
}

std::string NoteAppliedSql(const Layout& layout, int number, const std::string& version) {
  return absl::StrCat("INSERT INTO ", layout.database, ".", kApplied, " (number, version) VALUES (", number,
                      ", ", Literal(version), ")");
}

std::vector<TableFacts> Tables() {
  std::vector<TableFacts> tables;
  ForEachTable([&](const auto& row) {
    using Row = std::decay_t<decltype(row)>;
    tables.push_back({.name = Row::kTable,
                      .meaning = Row::kMeaning,
                      .order = Row::kOrder,
                      .version = Row::kVersion,
                      .days = Row::kDays,
                      .columns = ColumnsOf<Row>()});
  });
  return tables;
}

// ALL EXCEPT, so that a user who is forgotten here reads no rows of others.
std::vector<std::string> PolicySql(const Layout& layout, const std::string& all_rows) {
  std::vector<std::string> tables;
  for (const TableFacts& table : Tables()) tables.push_back(absl::StrCat(layout.database, ".", table.name));
  for (const char* const table : kStepSums) tables.push_back(absl::StrCat(layout.database, ".", table));
  std::vector<std::string> statements = {
      absl::StrCat("CREATE ROLE IF NOT EXISTS ", kReaders, OnReplicas(layout))};
  for (const std::string& table : tables) {
    const auto policy = [&](const char* name, const std::string& rule) {
      statements.push_back(absl::StrCat("CREATE ROW POLICY IF NOT EXISTS ", name, OnReplicas(layout), " ON ",
                                        table, " FOR SELECT USING ", rule));
    };
    policy("own_rows", absl::StrCat("user = currentUser() TO ALL EXCEPT ", all_rows));
    policy("all_rows", absl::StrCat("1 TO ", all_rows));
    statements.push_back(absl::StrCat("GRANT", OnReplicas(layout), " SELECT ON ", table, " TO ", kReaders));
  }
  return statements;
}

}  // namespace gpuprobe::clickhouse
