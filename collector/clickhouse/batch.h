// Rows of several tables that belong together: all of them are kept, or none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "collector/clickhouse/columns.h"

namespace gpuprobe::clickhouse {

struct Section {
  std::string columns;     // joined by ", "
  std::string row_binary;  // not compressed
  uint64_t rows = 0;
};

class Batch {
 public:
  template <typename Row>
  void Add(const Row& row) {
    Section& section = sections_[Row::kTable];
    if (section.columns.empty()) section.columns = ColumnList<Row>();
    AppendRow(row, section.row_binary);
    ++section.rows;
  }
  // Adds the rows of another one.
  void Append(const Batch& other) {
    for (const auto& [table, section] : other.sections_) {
      Section& own = sections_[table];
      own.columns = section.columns;
      own.row_binary += section.row_binary;
      own.rows += section.rows;
    }
  }
  bool empty() const { return sections_.empty(); }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [table, section] : sections_) sum += section.row_binary.size();
    return sum;
  }
  uint64_t rows() const {
    uint64_t sum = 0;
    for (const auto& [table, section] : sections_) sum += section.rows;
    return sum;
  }
  // By table.
  const std::map<std::string, Section>& sections() const { return sections_; }

 private:
  std::map<std::string, Section> sections_;
};

}  // namespace gpuprobe::clickhouse
