// Rows as bytes, and the spool that keeps them until a server has them.
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/clickhouse/client.h"
#include "collector/clickhouse/rows.h"
#include "collector/clickhouse/schema.h"
#include "collector/clickhouse/spool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gpuprobe::clickhouse {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest() : folder_(fs::temp_directory_path() / ("gpuprobe-spool-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~SpoolTest() override { fs::remove_all(folder_); }

  Spool Open(uint64_t most_bytes = kMiB) {
    absl::StatusOr<Spool> spool = Spool::Open(folder_, most_bytes);
    EXPECT_TRUE(spool.ok()) << spool.status();
    return *std::move(spool);
  }
  static Batch Losses(uint64_t rows, const std::string& why = "why") {
    Batch batch;
    for (uint64_t i = 0; i < rows; ++i) {
      LossRow row;
      row.count = i;
      row.why.text = why;
      batch.Add(row);
    }
    return batch;
  }
  static void NothingLost(const std::string& table, uint64_t rows) {
    ADD_FAILURE() << rows << " of " << table;
  }

  const fs::path folder_;
};

TEST(RowsTest, ARowIsReadBackAsItWasWritten) {
  FindingRow row;
  row.of.job.text = std::string(300, 'j');  // its length takes two bytes
  row.of.attempt = 7;
  row.cost_ns_per_step = 1.5;
  row.last_step = 9;
  row.ranks = {-1, 3};
  row.hosts = {"n1", ""};
  row.opened.ns = 1'700'000'000'000'000'001;
  row.at_end = true;
  std::string bytes;
  AppendRow(row, bytes);
  FindingRow read;
  ASSERT_TRUE(ReadRow(bytes, read));
  EXPECT_EQ(read.of.job.text, row.of.job.text);
  EXPECT_EQ(read.of.attempt, 7);
  EXPECT_EQ(read.cost_ns_per_step, 1.5);
  EXPECT_EQ(read.first_step, std::nullopt);
  EXPECT_EQ(read.last_step, 9u);
  EXPECT_THAT(read.ranks, ElementsAre(-1, 3));
  EXPECT_THAT(read.hosts, ElementsAre("n1", ""));
  EXPECT_EQ(read.opened.ns, row.opened.ns);
  EXPECT_TRUE(read.at_end);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(ReadRow(std::string_view(bytes).substr(0, length), read)) << length;
  EXPECT_FALSE(ReadRow(bytes + "x", read));
}

TEST(RowsTest, EachTableHasItsKeysAndNoColumnTwice) {
  for (const TableFacts& table : Tables()) {
    std::map<std::string, int> columns;
    for (const Column& column : table.columns) ++columns[column.name];
    for (const auto& [name, times] : columns) EXPECT_EQ(times, 1) << table.name << "." << name;
    for (size_t at = 0; at < table.order.size();) {
      const size_t comma = std::min(table.order.find(", ", at), table.order.size());
      EXPECT_TRUE(columns.contains(table.order.substr(at, comma - at))) << table.name << ": " << table.order;
      at = comma + 2;
    }
    EXPECT_TRUE(table.version.empty() || columns.contains(table.version)) << table.name;
  }
}

TEST(RowsTest, PoliciesAreOfAllTablesWithAUser) {
  const std::vector<std::string> statements = PolicySql({.database = "db"}, "gpuprobe, grafana");
  EXPECT_EQ(statements[0], "CREATE ROLE IF NOT EXISTS gpuprobe_readers");
  const std::string all = absl::StrJoin(statements, ";\n");
  std::string tables = all;
  for (const Migration& migration : Migrations({.database = "db"})) {
    for (const std::string& statement : migration.statements) {
      const std::string start = "CREATE TABLE IF NOT EXISTS ";
      if (!absl::StartsWith(statement, start) || !absl::StrContains(statement, "`user`")) continue;
      const std::string table = statement.substr(start.size(), statement.find('\n') - start.size());
      for (const std::string& wanted :
           {absl::StrCat("CREATE ROW POLICY IF NOT EXISTS own_rows ON ", table,
                         " FOR SELECT USING user = currentUser() TO ALL EXCEPT gpuprobe, grafana"),
            absl::StrCat("CREATE ROW POLICY IF NOT EXISTS all_rows ON ", table,
                         " FOR SELECT USING 1 TO gpuprobe, grafana"),
            absl::StrCat("GRANT SELECT ON ", table, " TO gpuprobe_readers")})
        EXPECT_NE(std::find(statements.begin(), statements.end(), wanted), statements.end()) << wanted;
      tables.clear();
    }
  }
  EXPECT_TRUE(tables.empty()) << "no table has a user";
  EXPECT_EQ(statements.size(), 1 + 3 * (Tables().size() + 2));
  EXPECT_EQ(PolicySql({.database = "db", .replicas = "all"}, "x")[1],
            "CREATE ROW POLICY IF NOT EXISTS own_rows ON CLUSTER all ON db.jobs FOR SELECT USING user = "
            "currentUser() TO ALL EXCEPT x");
}

TEST_F(SpoolTest, WhoeverBeginsAgainFindsRowsAndStates) {
  {
    Spool spool = Open();
    ASSERT_TRUE(
        spool.Add(Losses(3), {{{"run.1", "steps"}, "s1"}, {{"run.1", "minute"}, "m1"}}, NothingLost).ok());
    ASSERT_TRUE(
        spool.Add(Losses(2), {{{"run.1", "steps"}, "s2"}, {{"run.2", "steps"}, "t"}}, NothingLost).ok());
    EXPECT_FALSE(Spool::Open(folder_, kMiB).ok()) << "two hubs with one spool";
  }
  Spool spool = Open();
  EXPECT_THAT(spool.found(),
              UnorderedElementsAre(Pair(Pair("run.1", "steps"), "s2"), Pair(Pair("run.1", "minute"), "m1"),
                                   Pair(Pair("run.2", "steps"), "t")));
  ASSERT_EQ(spool.entries().size(), 2u);
  const absl::StatusOr<v1::RowRound> round = spool.Read(spool.entries().front());
  ASSERT_TRUE(round.ok()) << round.status();
  ASSERT_EQ(round->sections_size(), 1);
  EXPECT_EQ(round->sections(0).table(), "losses");
  EXPECT_EQ(round->sections(0).rows(), 3u);
  std::string rows(4096, '\0');
  const std::string& packed = round->sections(0).row_binary();
  rows.resize(ZSTD_decompress(rows.data(), rows.size(), packed.data(), packed.size()));
  EXPECT_EQ(rows, Losses(3).sections().at("losses").row_binary);
}

TEST_F(SpoolTest, StatesOutliveTheirRoundsUntilTheJobIsOver) {
  {
    Spool spool = Open();
    ASSERT_TRUE(
        spool.Add(Losses(1), {{{"run.1", "steps"}, "s1"}, {{"run.2", "steps"}, "t1"}}, NothingLost).ok());
    ASSERT_TRUE(spool.Add(Losses(1), {{{"run.2", "steps"}, ""}}, NothingLost).ok());
    spool.RemoveOldest();
    EXPECT_THAT(Spool::Open(folder_, kMiB).status().message(), ::testing::HasSubstr("another"));
  }
  {
    Spool spool = Open();
    EXPECT_THAT(spool.found(), ElementsAre(Pair(Pair("run.1", "steps"), "s1"))) << "run.2 is over";
    EXPECT_EQ(spool.entries().size(), 1u);
    spool.RemoveOldest();
    EXPECT_EQ(spool.bytes(), 0u);
  }
  EXPECT_THAT(Open().found(), ElementsAre(Pair(Pair("run.1", "steps"), "s1")));
}

TEST_F(SpoolTest, TheOldestGoWhereItIsFullAndAreCounted) {
  Spool spool = Open(2000);
  std::map<std::string, uint64_t> lost;
  const auto count = [&](const std::string& table, uint64_t rows) { lost[table] += rows; };
  uint64_t kept = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(spool.Add(Losses(1 + i), {{{"run", "steps"}, std::to_string(i)}}, count).ok());
    kept += 1 + i;
    EXPECT_LE(spool.bytes(), 2000u);
  }
  uint64_t there = 0;
  for (const Spool::Entry& entry : spool.entries()) {
    const absl::StatusOr<v1::RowRound> round = spool.Read(entry);
    ASSERT_TRUE(round.ok());
    for (const v1::RowSection& section : round->sections()) there += section.rows();
  }
  EXPECT_GT(there, 0u);
  EXPECT_EQ(there + lost["losses"], kept);
  EXPECT_THAT(lost, ElementsAre(Pair("losses", ::testing::Gt(0u))));
}

TEST_F(SpoolTest, WhatIsDamagedIsSaid) {
  {
    Spool spool = Open();
    ASSERT_TRUE(spool.Add(Losses(1), {{{"run", "steps"}, "s"}}, NothingLost).ok());
  }
  for (const auto& file : fs::directory_iterator(folder_)) {
    if (file.path().extension() == ".round") std::ofstream(file.path()) << "\x0a\xff\xff\xff";
  }
  Spool spool = Open();
  EXPECT_TRUE(spool.found().empty());
  ASSERT_EQ(spool.entries().size(), 1u);
  EXPECT_TRUE(absl::IsDataLoss(spool.Read(spool.entries().front()).status()));
  spool.RemoveOldest();
  EXPECT_TRUE(spool.entries().empty());
}

TEST(ServerTest, UrlsAreChecked) {
  for (const char* url : {"http://ch:8123", "https://ch.example:8443/", "http://[::1]:8123"})
    EXPECT_TRUE(Server::Parse(url).ok()) << url;
  for (const char* url :
       {"", "ch:8123", "http://", "http://me:secret@ch:8123", "http://ch:8123/db", "http://ch?x", "ftp://ch"})
    EXPECT_TRUE(absl::IsInvalidArgument(Server::Parse(url).status())) << url;
}

}  // namespace
}  // namespace gpuprobe::clickhouse
