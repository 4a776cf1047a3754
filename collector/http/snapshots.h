// Immutable snapshots that the collector's thread hands to the serving threads.
//
// Two kinds, because they cost differently. The moment (status, numbers) is made every second. The documents
// (report.json and what the page draws) are made while there are viewers. Each snapshot is serialised once,
// at the first request, and the text is shared by all.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "collector/analysis/job_numbers.h"
#include "collector/analysis/live_status.h"
#include "collector/http/served_files.h"

namespace gpuprobe::http {

// Text that is made when it is first read. Safe from many threads.
class LazyText {
 public:
  const std::string& Get(const std::function<std::string()>& make) const {
    std::call_once(once_, [&] { text_ = make(); });
    return text_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::string text_;
};

// The collector itself.
struct CollectorNumbers {
  std::string version;
  size_t clients = 0;
  uint64_t clients_dropped = 0;
  uint64_t received_bytes = 0;
  uint64_t unwritten_frames = 0;  // counted, and not written: the disk is full
};

struct Moment {
  uint64_t number = 0;  // ascends
  analysis::LiveStatus status;
  analysis::JobNumbers job;
  CollectorNumbers collector;
  uint64_t changes = 0;  // as Documents.changes
  LazyText status_json;
  LazyText metrics;
  LazyText open_metrics;
};

struct Documents {
  uint64_t version = 0;  // ascends
  uint64_t changes = 0;  // of the model, which they were made from
  std::string report;
  std::string ranks;  // empty: all is in the report
  std::string summary;
  std::string text;  // as `gpuprobe report` prints it, plain
  std::string page_data;
  std::vector<ServedFile> files;
  std::vector<uint64_t> wanted_steps;  // steps that a viewer asked for, which page_data shows if it can
};

}  // namespace gpuprobe::http
