// Turns one process's batches into the events of its timeline, in one pass and bounded memory.
//
// Records are put into the order in which they start (ReorderWindow). By the time that a kernel comes out of
// it, its launch and the NCCL calls that it carries are known, so the kernel is described once, with its
// arrows: from the launch, and from each call. Records on one stream or thread that overlap, which viewers
// cannot show, go to further lanes of the same track.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "collector/model/records.h"
#include "collector/model/steps/step_record.h"
#include "collector/timeline/call_table.h"
#include "collector/timeline/definitions.h"
#include "collector/timeline/events.h"
#include "collector/timeline/lanes.h"
#include "collector/timeline/launch_table.h"
#include "collector/timeline/memory_levels.h"
#include "collector/timeline/occupancy_level.h"
#include "collector/timeline/process_clock.h"
#include "collector/timeline/reorder_window.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::timeline {

// Ranks of the job that are in a communicator, by its hash: "[0, 1, 2, 3]".
using GroupRanks = std::map<uint64_t, std::string>;

class ProcessTimeline {
 public:
  // Records that are held back, to be put in order.
  static constexpr size_t kReordered = 65536;

  // `process`, `groups` and `sink` outlive it.
  ProcessTimeline(const Process& process, const GroupRanks& groups, ProcessClock clock, Window window,
                  EventSink& sink);

  // InvalidArgument when the batch contradicts the schema; what came before in it may have been taken.
  absl::Status Add(const v1::Batch& batch);
  // `steps` are on the process's line, with the numbers that all ranks share.
  void Finish(const std::vector<model::StepRecord>& steps);

  uint64_t events() const { return events_; }
  // Left out because their times make no sense, or too many others overlap them.
  uint64_t left_out() const { return left_out_; }
  // The start of the last event, 0 if there is none.
  uint64_t last_ns() const { return last_ns_; }

 private:
  using Record =
      std::variant<model::KernelRecord, model::CopyRecord, model::MemsetRecord, model::GraphRunRecord,
                   model::SyncRecord, model::RangeRecord, model::CollectiveRecord, model::AllocationRecord,
                   model::SmallAllocationsRecord, model::AllocatorLevelRecord, model::PoolLevelRecord>;

  // Where a piece of device work ran, and for which launch.
  struct Place {
    uint32_t device;
    uint32_t context;
    uint32_t stream;
    uint64_t correlation;
    uint64_t graph_node;
  };

  absl::Status AddHostRecords(const v1::Batch& batch);
  absl::Status AddMemoryRecords(const v1::Batch& batch);
  absl::Status AddDeviceRecords(const v1::Batch& batch);
  template <typename T>
  void Hold(uint64_t start_ns, uint64_t end_ns, uint64_t order, const T& record);
  // Hands each row of a batch to visit(record), with its times on the reference rank's clock.
  template <typename Record, typename Visitor>
  absl::Status Read(const v1::Batch& batch, const Visitor& visit);
  template <typename T>
  void HoldWork(uint32_t stream, T record);

  // Records as they come out of the window, with times on the reference rank's clock.
  void Show(const model::KernelRecord& r);
  void Show(const model::CopyRecord& r);
  void Show(const model::MemsetRecord& r);
  void Show(const model::GraphRunRecord& r);
  void Show(const model::SyncRecord& r);
  void Show(const model::RangeRecord& r);
  void Show(const model::CollectiveRecord& r);
  template <typename T>
  void Show(const T& level) {
    levels_.Apply(level);
  }
  void ShowStep(const model::StepRecord& step);
  void ShowLaunch(const LaunchTable::Launch& launch, std::string_view what);

  // Work of the device: adds what all kinds have in common, and the arrow from its launch.
  void ShowWork(Category category, const Place& place, uint64_t start_ns, uint64_t end_ns,
                std::string_view name, std::string_view launched_by);
  void DescribeCalls(CallTable::Plan& plan, bool first_work, bool whole);
  void DescribeGeometry(const Site& site);
  void Emit(Event event, TrackKey track, const std::string& track_name);
  bool Wants(uint64_t start_ns, uint64_t end_ns);
  void Put(std::string_view key, Value value, bool json = false);
  // For text that is made for this event.
  std::string_view Keep(std::string text);

  const Process& process_;
  const GroupRanks& groups_;
  ProcessClock clock_;
  Window window_;
  EventSink& sink_;
  Definitions definitions_;
  CallTable calls_;
  LaunchTable launches_{4 * kReordered};
  MemoryLevels levels_;
  OccupancyLevel occupancy_;
  ReorderWindow<Record> held_{kReordered};
  uint64_t order_ = 0;
  uint64_t device_until_ns_ = 0;
  std::map<TrackKey, Lanes> lanes_;  // by track, lane 0
  std::set<TrackKey> described_;
  std::set<Counter> described_counters_;
  uint64_t events_ = 0;
  uint64_t left_out_ = 0;
  uint64_t last_ns_ = 0;
  // The arguments of the event being described.
  std::vector<Arg> args_;
  std::vector<Flow> begins_;
  std::vector<Flow> ends_;
  std::deque<std::string> text_;
};

}  // namespace gpuprobe::timeline
