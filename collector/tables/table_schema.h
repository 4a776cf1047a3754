// The tables of a run: one for each kind of row that the export prints, with the same fields.
//
// Which kinds there are, and which fields each can have, is not listed here: one record of every kind, with
// all of its columns set, goes through the export, and its rows are the schema. A new record kind is a new
// table.
#pragma once

#include <string>
#include <vector>

#include "collector/tables/row_text.h"

namespace gpuprobe::tables {

struct Column {
  std::string name;
  ValueType type = ValueType::kText;
};

struct Table {
  std::string name;
  std::vector<Column> columns;
};

// SQL does not distinguish upper case from lower.
bool IsSameColumn(std::string_view a, std::string_view b);

// Of records, in the order in which the export prints kinds.
std::vector<Table> RecordTables();

// Adds the tables and columns of this row that are not known yet.
void Widen(std::string_view row, std::vector<Table>& tables);

}  // namespace gpuprobe::tables
