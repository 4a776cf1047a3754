// Cuts the slices of a few windows of time out of a process's batches.
//
// Memory: kMostSlices for each window, and what the log defines. Bytes that a batch gets wrong end the slices
// there; they never end the report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/analysis/trust/clock_alignment.h"
#include "collector/page/slices.h"
#include "collector/page/track_layout.h"
#include "collector/records/call_table.h"
#include "collector/records/host_stretches.h"
#include "collector/records/launch_table.h"
#include "collector/records/log_reader.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::page {

class LogSlicer {
 public:
  static constexpr size_t kMostSlices = 200'000;     // of a window, as they are read
  static constexpr size_t kMostJoinedSlices = 2500;  // of a window, in the page
  static constexpr size_t kMostHostSlices = 1000;    // of a window: the longest
  static constexpr uint64_t kLateNs =
      10'000'000'000;  // a record may arrive at most this much later than the time it is about

  // On the reference rank's clock, as the slices' times.
  struct Window {
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
  };

  // `names` outlives it.
  LogSlicer(std::vector<Window> windows, const analysis::AlignedClock& clock, NameTable& names);

  // The batches of one process, in order.
  absl::Status Apply(const v1::Batch& batch);
  // Nothing more can come for any window.
  bool done() const { return done_; }
  // By window; empty tracks where nothing was found.
  std::vector<RankSlices> Take();

 private:
  static constexpr size_t kPlansInReach = 16384;  // of calls outside of all windows, until a graph has them

  struct Cut {
    PlacedSlice placed;
    std::optional<model::KernelRecord> kernel;
  };

  template <typename... Records>
  absl::Status Read(const v1::Batch& batch);
  // Records with their times on the reference rank's clock.
  void On(const model::CollectiveRecord& r) { calls_.Add(r, Near(r.issue_ns)); }
  void On(const model::PlanRecord& r) { calls_.Add(r); }
  void On(const model::LaunchRecord& r);
  void On(const model::KernelRecord& r);
  void On(const model::CopyRecord& r);
  void On(const model::MemsetRecord& r);
  void On(const model::RangeRecord& r);
  void On(const model::HostSampleRecord& r) {
    stretches_.Add(r, [this](const model::HostStretch& stretch) { Add(stretch); });
  }
  void Add(const model::HostStretch& stretch);
  // The system call with its file, then the stack.
  std::string DetailsOf(const model::HostSampleRecord& r) const;
  template <typename Record>
  void Add(const Record& r, const Place& place, SliceKind kind, uint32_t name);
  // Names a kernel's slice, and says of which kind it is.
  void Name(const model::KernelRecord& kernel, Slice& slice);
  bool Near(uint64_t time_ns) const;
  std::string CallName(const model::CollectiveRecord& call) const;
  const std::string& Text(uint32_t id) const;
  std::string NameOf(const Place& place, bool several) const;
  std::string ThreadName(uint32_t id) const;

  std::vector<Window> windows_;
  std::vector<std::vector<Cut>> cuts_;        // by window
  std::vector<std::vector<HostSlice>> host_;  // by window
  NameTable& names_;
  bool done_ = false;
  const analysis::AlignedClock clock_;
  model::LogReader reader_;
  const model::Definitions& definitions_ = reader_.definitions();
  model::HostStretches stretches_;
  model::CallTable calls_{kPlansInReach};
  model::LaunchTable launches_{model::kMaxCaptured};      // near a window
  absl::flat_hash_map<uint32_t, uint32_t> kernel_names_;  // NameTable, by KernelSite
};

}  // namespace gpuprobe::page
