// The tables of a schema: what columns.proto's options, the fields' names and their types say, put together.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "gpuprobe/v1/columns.pb.h"

namespace gpuprobe::codegen {

struct ColumnSpec {
  const google::protobuf::FieldDescriptor* field = nullptr;
  v1::Column options;
  std::string member;  // of the row
  std::string of;      // the member that it is a distance from; empty: none
  bool delta = false;  // from the column's previous value

  bool IsTime() const { return options.role() != v1::Column::VALUE; }
};

struct LineField {
  std::string name;
  bool optional = false;
  const ColumnSpec* column = nullptr;  // null: the export finds it out
};

struct TableSpec {
  const google::protobuf::Descriptor* message = nullptr;
  const google::protobuf::FieldDescriptor* in_batch = nullptr;
  v1::Table options;
  std::vector<ColumnSpec> columns;
  // What all rows of one message share, so that a batch may have several: Launches.thread.
  const google::protobuf::FieldDescriptor* key = nullptr;
  std::string previous;     // the member that the next row's time is relative to; empty: rows have no time
  std::string in_order_of;  // empty: rows have no time
  std::string line_kind;    // empty: rows are not exported
  std::vector<LineField> line;

  int FirstColumn() const { return columns.front().field->number(); }
  // Columns' places are their numbers less the first one; a gap is a place without a column.
  int ColumnPlaces() const { return columns.back().field->number() - FirstColumn() + 1; }
};

// The tables of the message Batch, in the order of its fields. False: `error` says what contradicts itself.
bool TablesOf(const google::protobuf::FileDescriptor& file, std::vector<TableSpec>* tables,
              std::string* error);

// "start_delta" -> "kStartDelta", "COPY_DIRECTION_H2D" -> "kCopyDirectionH2d"
std::string ConstantName(const std::string& snake);

}  // namespace gpuprobe::codegen
