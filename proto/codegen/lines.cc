#include "proto/codegen/writers.h"

namespace gpuprobe::codegen {

namespace {

void WriteField(const LineField& field, Printer& out) {
  const bool string = field.column != nullptr && field.column->options.string();
  const bool plus_one = field.column != nullptr && field.column->options.plus_one();
  out.Print("    ");
  if (field.optional)
    out.Print(plus_one ? "if (r.$name$ >= 0) " : "if (line.Says(r.$name$)) ", "name", field.name);
  out.Print(string ? "line.PutString(\"$name$\", r.$name$);\n" : "line.Put(\"$name$\", r.$name$);\n", "name",
            field.name);
}

}  // namespace

void WriteLines(const std::vector<TableSpec>& tables, Printer& out) {
  out.Print(
      "#pragma once\n\n#include \"gpuprobe/v1/wire_records.h\"\n\nnamespace gpuprobe::tables {\n\n"
      "// The line of a record: its kind, and its fields, put into `line` one after the other. `r` is the "
      "record, or a struct "
      "derived\n// from it that has the fields which had to be found out.\ntemplate <typename "
      "Record>\nstruct LineOf;\n");
  for (const TableSpec& table : tables) {
    if (table.line.empty()) continue;
    out.Print(
        "\ntemplate <>\nstruct LineOf<model::$row$Record> {\n  static constexpr char kKind[] = \"$kind$\";\n "
        " template "
        "<typename Record, typename Line>\n  static void Put(const Record& r, Line& line) {\n",
        "row", table.options.row(), "kind", table.line_kind);
    for (const LineField& field : table.line) WriteField(field, out);
    out.Print("  }\n};\n");
  }
  out.Print("\n}  // namespace gpuprobe::tables\n");
}

void WriteLinesJson(const std::vector<TableSpec>& tables, Printer& out) {
  out.Print("{\n");
  bool first = true;
  for (const TableSpec& table : tables) {
    if (table.line.empty()) continue;
    out.Print("$comma$  \"$kind$\": [", "comma", first ? "" : ",\n", "kind", table.line_kind);
    for (const LineField& field : table.line)
      out.Print("$comma$\"$name$\"", "comma", &field == &table.line.front() ? "" : ", ", "name", field.name);
    out.Print("]");
    first = false;
  }
  out.Print("\n}\n");
}

}  // namespace gpuprobe::codegen
