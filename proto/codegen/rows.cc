#include "proto/codegen/writers.h"

namespace gpuprobe::codegen {

namespace {

using Field = google::protobuf::FieldDescriptor;

// One side of the wire: what it calls its structs, where they are, and where its enums are.
struct Side {
  std::string suffix;
  std::string scope;
  std::string enums;
};
const Side kInjector{.suffix = "Row", .scope = "wire::", .enums = ""};
const Side kCollector{.suffix = "Record", .scope = "model::", .enums = "v1::"};

std::string NameOf(const TableSpec& table, const Side& side) { return table.options.row() + side.suffix; }

std::string TypeOf(const ColumnSpec& column, const Side& side) {
  if (column.options.flag()) return "bool";
  if (column.options.plus_one()) return "int32_t";
  if (column.IsTime() || column.delta) return "uint64_t";
  switch (column.field->type()) {
    case Field::TYPE_ENUM:
      return side.enums + column.field->enum_type()->name();
    case Field::TYPE_UINT32:
      return "uint32_t";
    case Field::TYPE_SINT32:
      return "int32_t";
    case Field::TYPE_SINT64:
      return "int64_t";
    default:
      return "uint64_t";
  }
}

void WriteStruct(const TableSpec& table, const Side& side, Printer& out) {
  out.Print("\nstruct $row$ {\n", "row", NameOf(table, side));
  if (table.key != nullptr) out.Print("  uint32_t $key$ = 0;\n", "key", table.key->name());
  for (const ColumnSpec& column : table.columns)
    out.Print("  $type$ $member$$value$;\n", "type", TypeOf(column, side), "member", column.member, "value",
              column.options.plus_one() ? " = -1" : "{}");
}

std::string CodingOf(const ColumnSpec& column) {
  if (column.options.plus_one()) return "kPlusOne";
  const bool zig_zag =
      column.field->type() == Field::TYPE_SINT32 || column.field->type() == Field::TYPE_SINT64;
  return zig_zag ? "kZigZag" : "kPlain";
}

std::string RoleOf(const ColumnSpec& column) {
  return column.delta ? "kDelta" : ConstantName(v1::Column::Role_Name(column.options.role()));
}

std::string Member(const TableSpec& table, const Side& side, const std::string& member) {
  return member.empty() ? "nullptr" : "&" + side.scope + NameOf(table, side) + "::" + member;
}

void WriteColumns(const TableSpec& table, const Side& side, Printer& out) {
  out.Print("  static constexpr auto kPrevious = $previous$;\n", "previous",
            Member(table, side, table.previous));
  out.Print("  static constexpr auto kKey = $key$;\n", "key",
            Member(table, side, table.key == nullptr ? "" : table.key->name()));
  out.Print("  using Columns = wire::ColumnList<\n");
  for (const ColumnSpec& column : table.columns) {
    out.Print(
        "      wire::Column<$number$, wire::Role::$role$, wire::Coding::$coding$, $member$, $of$, "
        "$none$, $text$>$end$\n",
        "number", std::to_string(column.field->number()), "role", RoleOf(column), "coding", CodingOf(column),
        "member", Member(table, side, column.member), "of", Member(table, side, column.of), "none",
        column.options.may_be_none() ? "true" : "false", "text", column.options.string() ? "true" : "false",
        "end", &column == &table.columns.back() ? ">;" : ",");
  }
}

void WriteList(const std::vector<TableSpec>& tables, const Side& side, Printer& out) {
  out.Print("\n// Every kind of row.\ntemplate <template <typename...> typename List>\nusing $name$ = List<",
            "name", "All" + side.suffix + "s");
  for (const TableSpec& table : tables)
    out.Print("$comma$$row$", "comma", &table == &tables.front() ? "" : ", ", "row", NameOf(table, side));
  out.Print(">;\n");
}

}  // namespace

void WriteRows(const std::vector<TableSpec>& tables, Printer& out) {
  out.Print(
      "#pragma once\n\n#include <cstdint>\n\n#include \"gpuprobe/v1/wire_tags.h\"\n#include "
      "\"proto/columns.h\"\n\nnamespace gpuprobe::wire {\n");
  for (const TableSpec& table : tables) {
    WriteStruct(table, kInjector, out);
    out.Print("};\n\ntemplate <>\nstruct TableOf<$row$> {\n  using Tag = $message$Tag;\n", "row",
              NameOf(table, kInjector), "message", table.message->name());
    out.Print(
        "  static constexpr BatchTag kField = BatchTag::$field$;\n  static constexpr int kFirst = $first$;\n"
        "  static constexpr int kPlaces = $places$;\n  static constexpr int kKeyNumber = $key$;\n",
        "field", ConstantName(table.in_batch->name()), "first", std::to_string(table.FirstColumn()), "places",
        std::to_string(table.ColumnPlaces()), "key",
        std::to_string(table.key == nullptr ? 0 : table.key->number()));
    WriteColumns(table, kInjector, out);
    out.Print("};\n");
  }
  WriteList(tables, kInjector, out);
  out.Print("\n}  // namespace gpuprobe::wire\n");
}

namespace {

// Takes the message's columns apart, in the order of the list.
void WriteFields(const TableSpec& table, Printer& out) {
  out.Print(
      "  template <typename Take>\n  static decltype(auto) Fields(const Message& m, Take&& take) {\n    "
      "return take(");
  for (const ColumnSpec& column : table.columns)
    out.Print("$comma$m.$field$()", "comma", &column == &table.columns.front() ? "" : ", ", "field",
              column.field->name());
  out.Print(");\n  }\n");
}

void WriteRecord(const TableSpec& table, Printer& out) {
  WriteStruct(table, kCollector, out);
  out.Print("\n  template <typename Archive>\n  void Visit(Archive& archive) {\n    archive.Members(this, ");
  if (table.key != nullptr) out.Print("$key$, ", "key", table.key->name());
  for (const ColumnSpec& column : table.columns)
    out.Print("$comma$$member$", "comma", &column == &table.columns.front() ? "" : ", ", "member",
              column.member);
  out.Print(");\n  }\n};\n");
}

void WriteVisitors(const std::vector<TableSpec>& tables, Printer& out) {
  out.Print(
      "\n// Calls visit(record) for each row of a batch. InvalidArgument, before it is called at all, if "
      "columns differ in "
      "length.\ntemplate <typename Record, typename Visit>\nabsl::Status ForEachRow(const v1::Batch& batch, "
      "Visit&& "
      "visit);\n");
  for (const TableSpec& table : tables) {
    out.Print(
        "template <typename Visit>\nabsl::Status ForEach$row$(const v1::Batch& batch, Visit&& visit) {\n  "
        "return "
        "ForEachRow<$row$Record>(batch, std::forward<Visit>(visit));\n}\n",
        "row", table.options.row());
  }
}

}  // namespace

void WriteRecords(const std::vector<TableSpec>& tables, Printer& out) {
  out.Print(
      "#pragma once\n\n#include <cstdint>\n#include <utility>\n\n#include \"absl/status/status.h\"\n#include "
      "\"gpuprobe/v1/wire.pb.h\"\n#include \"proto/columns.h\"\n\nnamespace gpuprobe::model {\n");
  for (const TableSpec& table : tables) WriteRecord(table, out);
  WriteVisitors(tables, out);
  WriteList(tables, kCollector, out);
  out.Print("\n}  // namespace gpuprobe::model\n\nnamespace gpuprobe::wire {\n");
  for (const TableSpec& table : tables) {
    out.Print(
        "\ntemplate <>\nstruct TableOf<model::$row$> {\n  using Message = v1::$message$;\n  static constexpr "
        "char "
        "kName[] = \"$message$\";\n  static constexpr int kField = $field$;\n  static constexpr auto kClock "
        "= "
        "v1::Table::$clock$;\n",
        "row", NameOf(table, kCollector), "message", table.message->name(), "field",
        std::to_string(table.in_batch->number()), "clock", v1::Table::Clock_Name(table.options.clock()));
    out.Print("  static constexpr auto kInOrderOf = $member$;\n", "member",
              Member(table, kCollector, table.in_order_of));
    WriteColumns(table, kCollector, out);
    out.Print("  static const auto& In(const v1::Batch& batch) { return batch.$field$(); }\n", "field",
              table.in_batch->name());
    if (table.key != nullptr)
      out.Print("  static uint32_t KeyOf(const Message& m) { return m.$key$(); }\n", "key",
                table.key->name());
    WriteFields(table, out);
    out.Print("};\n");
  }
  out.Print("\n}  // namespace gpuprobe::wire\n");
}

void WriteWriters(const std::vector<TableSpec>& tables, Printer& out) {
  out.Print(
      "#pragma once\n\n#include \"gpuprobe/v1/wire_records.h\"\n\nnamespace gpuprobe::wire {\n\n"
      "// Where records go: the message of their kind in a batch, of which `first` is the first row, and its "
      "columns.\ntemplate <typename Record>\nstruct WriterOf;\n");
  for (const TableSpec& table : tables) {
    out.Print("\ntemplate <>\nstruct WriterOf<model::$row$> {\n", "row", NameOf(table, kCollector));
    if (table.key == nullptr) {
      out.Print(
          "  static auto& In(v1::Batch& batch, const auto& /*first*/) { return *batch.mutable_$field$(); }\n",
          "field", table.in_batch->name());
    } else {
      out.Print(
          "  static auto& In(v1::Batch& batch, const auto& first) {\n    auto& m = *batch.add_$field$();\n"
          "    m.set_$key$(first.$key$);\n    return m;\n  }\n",
          "field", table.in_batch->name(), "key", table.key->name());
    }
    out.Print("  static void Fields(v1::$message$& m, auto&& take) {\n    take(", "message",
              table.message->name());
    for (const ColumnSpec& column : table.columns)
      out.Print("$comma$*m.mutable_$field$()", "comma", &column == &table.columns.front() ? "" : ", ",
                "field", column.field->name());
    out.Print(");\n  }\n};\n");
  }
  out.Print("\n}  // namespace gpuprobe::wire\n");
}

}  // namespace gpuprobe::codegen
