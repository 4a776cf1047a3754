#include "proto/codegen/tables.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace gpuprobe::codegen {

namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

const ColumnSpec* FindMember(const TableSpec& table, const std::string& member) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](const ColumnSpec& column) { return column.member == member; });
  return found == table.columns.end() ? nullptr : &*found;
}

const ColumnSpec* FindRole(const TableSpec& table, v1::Column::Role role) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](const ColumnSpec& column) { return column.options.role() == role; });
  return found == table.columns.end() ? nullptr : &*found;
}

ColumnSpec ColumnOf(const Field& field) {
  ColumnSpec column;
  column.field = &field;
  column.options = field.options().GetExtension(v1::column);
  std::string name = field.name();
  const bool delta = EndsWith(name, "_delta");
  if (delta) name.resize(name.size() - std::string("_delta").size());
  column.delta = delta && !column.IsTime();
  if (column.options.role() == v1::Column::END && name == "duration") name = "end";
  column.member = !column.options.name().empty() ? column.options.name()
                  : column.IsTime()              ? name + "_ns"
                                                 : name;
  return column;
}

// What columns are distances from. Only what stands before a column can be, because rows are read column by
// column.
std::string ResolveTimes(TableSpec* table) {
  const ColumnSpec* start = FindRole(*table, v1::Column::START);
  const ColumnSpec* first = start != nullptr ? start : FindRole(*table, v1::Column::TIME);
  const ColumnSpec* end = FindRole(*table, v1::Column::END);
  if (start != nullptr && end == nullptr) return "a START without an END";
  if (first != nullptr) table->previous = start != nullptr ? end->member : first->member;
  table->in_order_of = table->options.in_order_of().empty() ? table->previous : table->options.in_order_of();
  if (!table->in_order_of.empty() && FindMember(*table, table->in_order_of) == nullptr)
    return "in_order_of: no such member: " + table->in_order_of;
  for (ColumnSpec& column : table->columns) {
    const v1::Column::Role role = column.options.role();
    if (column.delta && column.field->type() != Field::TYPE_SINT64)
      return column.field->name() + ": a distance from the previous value must be sint64";
    if (role != v1::Column::END && role != v1::Column::AFTER && role != v1::Column::BEFORE) continue;
    if (first == nullptr) return column.field->name() + ": the row has no time";
    column.of = column.options.of().empty() ? first->member : column.options.of();
    const ColumnSpec* of = FindMember(*table, column.of);
    if (of == nullptr || of >= &column)
      return column.field->name() + ": of: no member before it: " + column.of;
  }
  return "";
}

std::string ResolveLine(TableSpec* table) {
  std::istringstream words(table->options.line());
  words >> table->line_kind;
  if (table->line_kind.empty()) return "";
  if (table->line_kind.back() != ':') return "line: no colon after the kind";
  table->line_kind.pop_back();
  for (std::string word; words >> word;) {
    const bool optional = word.back() == '?';
    if (optional) word.pop_back();
    table->line.push_back({.name = word, .optional = optional, .column = FindMember(*table, word)});
  }
  return "";
}

std::string Resolve(const Field& in_batch, TableSpec* table) {
  table->message = in_batch.message_type();
  table->in_batch = &in_batch;
  table->options = table->message->options().GetExtension(v1::table);
  for (int i = 0; i < table->message->field_count(); ++i) {
    const Field& field = *table->message->field(i);
    if (field.is_packed()) {
      table->columns.push_back(ColumnOf(field));
    } else if (table->key == nullptr && in_batch.is_repeated() && field.type() == Field::TYPE_UINT32) {
      table->key = &field;
    } else {
      return field.name() + " is neither a column nor what all rows of a message share";
    }
  }
  if (in_batch.is_repeated() != (table->key != nullptr)) return "repeated, without what tells messages apart";
  std::sort(table->columns.begin(), table->columns.end(),
            [](const ColumnSpec& a, const ColumnSpec& b) { return a.field->number() < b.field->number(); });
  std::string error = ResolveTimes(table);
  return error.empty() ? ResolveLine(table) : error;
}

}  // namespace

bool TablesOf(const pb::FileDescriptor& file, std::vector<TableSpec>* tables, std::string* error) {
  const pb::Descriptor* batch = file.FindMessageTypeByName("Batch");
  if (batch == nullptr) {
    *error = "no message Batch";
    return false;
  }
  for (int i = 0; i < batch->field_count(); ++i) {
    const Field& field = *batch->field(i);
    if (field.message_type() == nullptr || !field.message_type()->options().HasExtension(v1::table)) continue;
    tables->emplace_back();
    if (const std::string wrong = Resolve(field, &tables->back()); !wrong.empty()) {
      *error = field.message_type()->name() + ": " + wrong;
      return false;
    }
  }
  return true;
}

std::string ConstantName(const std::string& snake) {
  std::string result = "k";
  bool upper = true;
  for (const char c : snake) {
    if (c == '_') {
      upper = true;
      continue;
    }
    result += static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
    upper = false;
  }
  return result;
}

}  // namespace gpuprobe::codegen
