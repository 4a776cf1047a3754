// A run's tables as CSV files in a folder, one for each table (RFC 4180; what a row lacks is empty).
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/tables/row_text.h"
#include "collector/tables/table_schema.h"

namespace gpuprobe::tables {

// One row of CSV, with its end.
std::string CsvLine(const std::vector<std::string>& cells);

class CsvFiles {
 public:
  // Opens a file of the folder for writing.
  using OpenFile = std::function<absl::StatusOr<int>(const std::string& path)>;
  // In `folder`, which exists. Tables that get no row make no file.
  CsvFiles(std::string folder, OpenFile open) : folder_(std::move(folder)), open_(std::move(open)) {}

  void AddTable(const Table& table) { files_[table.name].table = table; }
  // Fields that the table does not have are left out.
  void Insert(std::string_view row);
  absl::Status Finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct File {
    Table table;
    std::unique_ptr<std::FILE, Close> file;
  };
  void Write(File& file, const std::vector<std::string>& cells);

  std::string folder_;
  OpenFile open_;
  std::map<std::string, File, std::less<>> files_;
  std::vector<Field> fields_;
  absl::Status status_;
};

}  // namespace gpuprobe::tables
