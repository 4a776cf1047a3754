#include "collector/tables/table_schema.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "collector/tables/record_lines.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace gpuprobe::tables {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Rows of a column: set, not set, and the other sign or a second choice.
constexpr int kRows[] = {1, 0, 2, -1};

void Add(Message& message, const FieldDescriptor& field, int value) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.AddInt32(&message, &field, value);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.AddInt64(&message, &field, value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.AddUInt32(&message, &field, static_cast<uint32_t>(std::max(value, 0)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.AddUInt64(&message, &field, static_cast<uint64_t>(std::max(value, 0)));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.AddEnumValue(&message, &field, std::max(value, 0));
    default:
      return;
  }
}

void Set(Message& message, const FieldDescriptor& field, int value) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, value);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, &field, value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, static_cast<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, static_cast<uint64_t>(value));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, &field, value);
    case FieldDescriptor::CPPTYPE_STRING:
      // A name of NCCL's, so that its kernels are collectives.
      return reflection.SetString(&message, &field, "ncclDevKernel_AllReduce");
    default:
      return;
  }
}

// Columns get all rows; single fields of a definition get `id`.
void Fill(Message& message, int id) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field.is_repeated()) {
      Set(message, field, id);
      continue;
    }
    for (const int row : kRows) Add(message, field, row);
  }
}

// Every kind of record and definition, with everything that it can have.
v1::Batch FullBatch() {
  v1::Batch batch;
  const Reflection& reflection = *batch.GetReflection();
  const google::protobuf::Descriptor& descriptor = *batch.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field.is_repeated()) {
      Fill(*reflection.MutableMessage(&batch, &field), 1);
      continue;
    }
    for (const int id : {1, 2}) Fill(*reflection.AddMessage(&batch, &field), id);
  }
  return batch;
}

Column* Find(Table& table, std::string_view name) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](const Column& c) { return IsSameColumn(c.name, name); });
  return found == table.columns.end() ? nullptr : &*found;
}

}  // namespace

bool IsSameColumn(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(absl::string_view(a.data(), a.size()), absl::string_view(b.data(), b.size()));
}

void Widen(std::string_view row, std::vector<Table>& tables) {
  std::vector<Field> fields;
  if (!SplitRow(row, fields) || fields.empty() || fields.front().key != kKind) return;
  const std::string name = TextOf(fields.front().value);
  auto table = std::find_if(tables.begin(), tables.end(), [&](const Table& t) { return t.name == name; });
  if (table == tables.end()) table = tables.insert(tables.end(), {.name = name, .columns = {}});
  for (size_t i = 1; i < fields.size(); ++i) {
    Column* column = Find(*table, fields[i].key);
    const ValueType type = TypeOf(fields[i].value);
    if (column == nullptr) {
      table->columns.push_back({.name = std::string(fields[i].key), .type = type});
    } else if (column->type == ValueType::kNone) {
      column->type = type;
    }
  }
}

std::vector<Table> RecordTables() {
  std::vector<Table> tables;
  RecordLines lines(nullptr);
  v1::Hello hello;
  hello.mutable_identity()->set_rank(0);
  lines.LearnHello(hello);
  const v1::Batch batch = FullBatch();
  lines.Learn(batch).IgnoreError();
  lines.Write(batch, [&](const std::string& row) { Widen(row, tables); }).IgnoreError();
  for (Table& table : tables) {
    static constexpr std::string_view kWorks[] = {"kernel", "memcpy", "memset", "graph_run", "collective"};
    if (std::find(std::begin(kWorks), std::end(kWorks), table.name) == std::end(kWorks)) continue;
    table.columns.push_back({.name = "step", .type = ValueType::kInteger});
    table.columns.push_back({.name = "phase", .type = ValueType::kText});
  }
  return tables;
}

}  // namespace gpuprobe::tables
