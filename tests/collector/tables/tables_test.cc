#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collector/tables/csv_files.h"
#include "collector/tables/report_tables.h"
#include "collector/tables/row_text.h"
#include "collector/tables/table_schema.h"

namespace gpuprobe::tables {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

TEST(RowText, IsSplitAtItsTopLevel) {
  std::vector<Field> fields;
  ASSERT_TRUE(SplitRow(
      R"({"kind":"range","rank":-1,"name":"a,\"b\"}","grid":[1,2],"fields":{"x":1.5,"y":"}"},"unclosed":true})",
      fields));
  std::vector<std::string> shown;
  for (const Field& field : fields) shown.push_back(std::string(field.key) + "=" + TextOf(field.value));
  EXPECT_THAT(shown, ElementsAre("kind=range", "rank=-1", "name=a,\"b\"}", "grid=[1,2]",
                                 R"(fields={"x":1.5,"y":"}"})", "unclosed=true"));
  EXPECT_EQ(TypeOf(fields[1].value), ValueType::kInteger);
  EXPECT_EQ(TypeOf(fields[2].value), ValueType::kText);
  EXPECT_EQ(TypeOf(fields[3].value), ValueType::kJson);
  EXPECT_EQ(TypeOf("1e9"), ValueType::kReal);
  EXPECT_EQ(TypeOf("null"), ValueType::kNone);
}

TEST(RowText, OtherTextIsNoRow) {
  std::vector<Field> fields;
  for (const char* text : {"", "{", "[]", "{kind:1}", R"({"a" 1})"})
    EXPECT_FALSE(SplitRow(text, fields)) << text;
}

TEST(TableSchema, HasEveryKindOfRowWithAllItsFields) {
  const std::vector<Table> tables = RecordTables();
  std::vector<std::string> names;
  for (const Table& table : tables) names.push_back(table.name);
  EXPECT_THAT(names, IsSupersetOf({"kernel", "memcpy", "memset", "graph_run", "sync", "alloc", "free",
                                   "small_allocations", "pool", "tensor", "tensor_free", "range", "launch",
                                   "communicator", "collective"}));
  for (const Table& table : tables) {
    std::vector<std::string> columns;
    for (const Column& column : table.columns) {
      columns.push_back(column.name);
      EXPECT_NE(column.type, ValueType::kNone) << table.name << "." << column.name;
    }
    EXPECT_THAT(columns, IsSupersetOf({"rank", "pid"})) << table.name;
    EXPECT_EQ(std::count(columns.begin(), columns.end(), "kind"), 0);
    if (table.name == "collective") {
      EXPECT_THAT(columns, IsSupersetOf({"captured", "replay", "result", "protocol", "start_ns"}));
    }
    if (table.name == "range") {
      EXPECT_THAT(columns, IsSupersetOf({"fields", "payload", "color", "category_name", "unclosed"}));
    }
  }
}

TEST(ReportTables, OneRowForSingleValuesAndATableForEachList) {
  std::vector<std::string> rows;
  ReportRows(R"({"steps":{"count":3,"time_ns":{"mean":1.5}},"hosts":["a"],"none":[],"nothing":null,
                 "ranks":[{"rank":7,"kernels":{"count":2},"phases":[{"name":"forward"}]}]})",
             [&](const std::string& row) { rows.push_back(row); });
  EXPECT_THAT(
      rows,
      ElementsAre(
          R"({"kind":"report","steps_count":3,"steps_time_ns_mean":1.5,"hosts":"[\"a\"]","none":"[]","nothing":null})",
          R"({"kind":"report_ranks","rank":7,"kernels_count":2})",
          R"({"kind":"report_ranks_phases","rank":7,"name":"forward"})"));
}

TEST(Csv, CellsAreQuotedWhereNeedBe) {
  EXPECT_EQ(CsvLine({"a", "", "b,c", "say \"x\"", "two\nlines", "b;c"}),
            "a,,\"b,c\",\"say \"\"x\"\"\",two?lines,\"b;c\"\r\n");
}

TEST(Csv, WhatASpreadsheetWouldComputeIsText) {
  EXPECT_EQ(CsvLine({"=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", " =1", std::string("\xef\xbc\x9d") + "1"}),
            "'=1+1,'+cmd,'-x,'@SUM(A1),'?=1,' =1,'\xef\xbc\x9d"
            "1\r\n");
  EXPECT_EQ(CsvLine({"-12", "-1.5e-07", "+3", "a=b", "-"}), "-12,-1.5e-07,+3,a=b,'-\r\n");
}

}  // namespace
}  // namespace gpuprobe::tables
