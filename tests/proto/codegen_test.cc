// What is generated from a schema: how columns become members, and which contradictions are refused.
#include <gmock/gmock.h>
#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/codegen/tables.h"

namespace gpuprobe::codegen {
namespace {

namespace pb = google::protobuf;
using ::testing::HasSubstr;

// The schema under test, and what it imports, in memory.
class Sources : public pb::compiler::SourceTree {
 public:
  explicit Sources(const std::string& schema)
      : files_{{"test.proto", schema},
               {"gpuprobe/v1/columns.proto", v1::Table::descriptor()->file()->DebugString()},
               {"google/protobuf/descriptor.proto", pb::FileOptions::descriptor()->file()->DebugString()}} {}
  pb::io::ZeroCopyInputStream* Open(const std::string& name) override {
    const auto file = files_.find(name);
    if (file == files_.end()) return nullptr;
    return new pb::io::ArrayInputStream(file->second.data(), static_cast<int>(file->second.size()));
  }

 private:
  std::map<std::string, std::string> files_;
};

struct Outcome {
  std::unique_ptr<Sources> sources;
  std::unique_ptr<pb::compiler::Importer> importer;
  std::vector<TableSpec> tables;
  std::string error;
};

// Of a Batch with the one table `T`, whose fields are `columns`.
Outcome TablesWith(const std::string& options, const std::string& columns, const char* repeated = "") {
  Outcome outcome;
  outcome.sources = std::make_unique<Sources>(
      "syntax = \"proto3\"; package gpuprobe.v1; import \"gpuprobe/v1/columns.proto\"; enum Color { RED = 0; "
      "} message T { option "
      "(table) = { row: \"R\" " +
      options + " }; " + columns + " } message Batch { uint64 sequence = 1; " + repeated + " T rows = 2; }");
  outcome.importer = std::make_unique<pb::compiler::Importer>(outcome.sources.get(), nullptr);
  const pb::FileDescriptor* file = outcome.importer->Import("test.proto");
  if (file == nullptr) {
    outcome.error = "not a schema";
  } else {
    TablesOf(*file, &outcome.tables, &outcome.error);
  }
  return outcome;
}

constexpr char kInterval[] =
    "repeated sint64 start_delta = 1 [(column) = {role: START}]; repeated uint64 duration = 2 [(column) = "
    "{role: END}];";

TEST(Tables, AnIntervalBeginsAfterThePreviousOnesEnd) {
  const Outcome of =
      TablesWith("line: \"thing: start_ns colour? what\"",
                 std::string(kInterval) + "repeated Color what = 4; repeated sint64 id_delta = 5;");
  ASSERT_EQ(of.error, "");
  ASSERT_EQ(of.tables.size(), 1u);
  const TableSpec& table = of.tables[0];
  EXPECT_EQ(table.columns[0].member, "start_ns");
  EXPECT_EQ(table.columns[1].member, "end_ns");
  EXPECT_EQ(table.columns[1].of, "start_ns");
  EXPECT_EQ(table.columns[3].member, "id");
  EXPECT_TRUE(table.columns[3].delta);
  EXPECT_EQ(table.previous, "end_ns");
  EXPECT_EQ(table.in_order_of, "end_ns");
  EXPECT_EQ(table.ColumnPlaces(), 5) << "one without a column";
  EXPECT_EQ(table.line_kind, "thing");
  ASSERT_EQ(table.line.size(), 3u);
  EXPECT_EQ(table.line[1].name, "colour");
  EXPECT_TRUE(table.line[1].optional);
  EXPECT_EQ(table.line[1].column, nullptr) << "the export finds it out";
  EXPECT_EQ(table.line[2].column->member, "what");
}

TEST(Tables, RowsWithoutATimeHaveNone) {
  const Outcome of = TablesWith("", "repeated sint64 plan_delta = 1;");
  ASSERT_EQ(of.error, "");
  EXPECT_EQ(of.tables[0].previous, "");
  EXPECT_EQ(of.tables[0].in_order_of, "");
}

TEST(Tables, WhatAllRowsOfAMessageShareTellsMessagesApart) {
  const Outcome of = TablesWith("", "uint32 thread = 1; repeated uint32 id = 2;", "repeated");
  ASSERT_EQ(of.error, "");
  EXPECT_EQ(of.tables[0].key->name(), "thread");
  EXPECT_EQ(of.tables[0].FirstColumn(), 2);
}

TEST(Tables, ContradictionsAreRefusedByName) {
  struct Case {
    const char* options;
    std::string columns;
    const char* repeated;
    const char* error;
  };
  const Case cases[] = {
      {"", "repeated sint64 start_delta = 1 [(column) = {role: START}];", "", "a START without an END"},
      {"", "repeated uint64 id_delta = 1;", "",
       "id_delta: a distance from the previous value must be sint64"},
      {"", "repeated uint64 since = 1 [(column) = {role: BEFORE}];", "", "since: the row has no time"},
      {"", std::string(kInterval) + "repeated uint64 since = 3 [(column) = {role: BEFORE, of: \"nothing\"}];",
       "", "since: of: no member before it: nothing"},
      {"",
       "repeated uint64 lasted = 1 [(column) = {role: END}]; repeated sint64 at = 2 [(column) = {role: "
       "TIME}];",
       "", "lasted: of: no member before it: at_ns"},
      {"in_order_of: \"end\"", kInterval, "", "in_order_of: no such member: end"},
      {"line: \"thing start_ns\"", kInterval, "", "line: no colon"},
      {"", std::string(kInterval) + "uint32 thread = 3;", "", "thread is neither a column"},
      {"", kInterval, "repeated", "repeated, without what tells messages apart"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(TablesWith(c.options, c.columns, c.repeated).error, HasSubstr(c.error)) << c.columns;
  }
}

}  // namespace
}  // namespace gpuprobe::codegen
