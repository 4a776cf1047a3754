// The files that are generated from a schema, one function each.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>

#include <vector>

#include "proto/codegen/tables.h"

namespace gpuprobe::codegen {

using Printer = google::protobuf::io::Printer;

// wire_tags.h: field numbers and enums, for an encoder without libprotobuf.
void WriteTags(const google::protobuf::FileDescriptor& file, Printer& out);
// wire_rows.h: the injector's rows, which it encodes.
void WriteRows(const std::vector<TableSpec>& tables, Printer& out);
// wire_records.h: the collector's rows, read from libprotobuf's messages, and a visitor for each kind.
void WriteRecords(const std::vector<TableSpec>& tables, Printer& out);
// wire_writers.h: how the collector's rows are put into libprotobuf's messages.
void WriteWriters(const std::vector<TableSpec>& tables, Printer& out);
// wire_lines.h: what `gpuprobe export` prints of each row; wire_lines.json: the same lists, for tests.
void WriteLines(const std::vector<TableSpec>& tables, Printer& out);
void WriteLinesJson(const std::vector<TableSpec>& tables, Printer& out);

}  // namespace gpuprobe::codegen
