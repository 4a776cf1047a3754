// Cuts the slices of a few windows of time out of a process's batches.
//
// Memory: kMostSlices for each window, and the definitions of the log. Bytes that a batch gets wrong end the
// slices there; they never end the report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/page/slices.h"
#include "collector/page/track_layout.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::page {

class LogSlicer {
 public:
  static constexpr size_t kMostSlices = 200'000;     // of a window, as they are read
  static constexpr size_t kMostJoinedSlices = 2500;  // of a window, in the page
  static constexpr uint64_t kLateNs =
      10'000'000'000;  // by how much records may come later than they happened

  struct Window {
    uint64_t start_ns = 0;  // on the process's clock
    uint64_t end_ns = 0;
  };

  // `names` outlives it.
  LogSlicer(std::vector<Window> windows, NameTable& names);

  // The batches of one process, in order.
  absl::Status Apply(const v1::Batch& batch);
  // Nothing more can come for any window.
  bool done() const { return done_; }
  // By window; empty tracks where nothing was found.
  std::vector<RankSlices> Take();

 private:
  struct Site {
    uint32_t name = 0;  // NameTable
    uint32_t context = 0;
    uint32_t stream = 0;
    uint32_t device = 0;
    SliceKind kind = SliceKind::kCompute;
  };
  struct Call {
    uint32_t name = 0;  // NameTable
    uint64_t seq = 0;
  };
  void LearnDefinitions(const v1::Batch& batch);
  absl::Status LearnCalls(const v1::Batch& batch);
  absl::Status CutDeviceRecords(const v1::Batch& batch);
  absl::Status CutRanges(const v1::Batch& batch);
  void Add(uint64_t start_ns, uint64_t end_ns, PlacedSlice cut);
  bool Near(uint64_t time_ns) const;
  std::string CallName(uint32_t op, uint64_t bytes, uint32_t comm) const;
  const std::string& Text(uint32_t id) const;
  std::string NameOf(const Place& place, bool several) const;

  std::vector<Window> windows_;
  std::vector<std::vector<PlacedSlice>> cuts_;  // by window
  NameTable& names_;
  bool done_ = false;
  absl::flat_hash_map<uint32_t, std::string> strings_;
  absl::flat_hash_map<uint32_t, Site> sites_;
  absl::flat_hash_map<uint32_t, std::string> threads_;
  absl::flat_hash_map<uint32_t, uint64_t> communicators_;           // hash
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> stream_names_;  // by context and stream
  absl::flat_hash_map<uint64_t, Call> calls_;                       // by plan, of calls near a window
  absl::flat_hash_map<uint64_t, uint64_t> plan_of_;                 // by correlation, of these
};

}  // namespace gpuprobe::page
