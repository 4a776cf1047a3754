// The options of `gpuprobe hub` for a ClickHouse server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "collector/clickhouse/writer.h"

namespace gpuprobe::cli {

class ClickhouseOption {
 public:
  void AddTo(CLI::App& app);
  bool is_given() const { return !url_.empty(); }
  // Whether only the tables are to be made, or shown.
  bool only_migrates() const { return migrate_ || dry_run_ || !all_rows_.empty(); }
  // Makes the tables, or prints what would make them, or the policies. The exit status.
  int MigrateOnly() const;
  // `out`: the hub's directory. `host`: its name. InvalidArgument for what cannot be meant.
  absl::StatusOr<std::unique_ptr<clickhouse::Writer>> Open(const std::string& out, const std::string& host,
                                                           clickhouse::Writer::Say say) const;

 private:
  clickhouse::Layout Layout() const { return {.database = database_, .replicas = replicas_}; }

  std::string url_;
  std::string database_ = clickhouse::Layout().database;
  std::string replicas_;
  std::string cluster_;
  uint64_t spool_bytes_ = uint64_t{1} << 30;
  bool migrate_ = false;
  bool dry_run_ = false;
  std::string all_rows_;  // who reads all rows, of the policies; empty: they are not asked for
};

}  // namespace gpuprobe::cli
