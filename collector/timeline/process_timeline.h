// Turns one process's batches into the events of its timeline, in one pass and bounded memory.
//
// Records are put into the order in which they start (ReorderWindow). By the time that a kernel comes out of
// it, its launch and the NCCL calls that it carries are known, so the kernel is described once, with its
// arrows: from the launch, and from each call. Records on one stream or thread that overlap, which viewers
// cannot show, go to further lanes of the same track.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "collector/analysis/trust/clock_alignment.h"
#include "collector/model/steps/step_record.h"
#include "collector/records/call_table.h"
#include "collector/records/host_stretches.h"
#include "collector/records/launch_table.h"
#include "collector/records/log_reader.h"
#include "collector/records/rows.h"
#include "collector/timeline/events.h"
#include "collector/timeline/lanes.h"
#include "collector/timeline/memory_levels.h"
#include "collector/timeline/occupancy.h"
#include "collector/timeline/occupancy_level.h"
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
  ProcessTimeline(const Process& process, const GroupRanks& groups, analysis::AlignedClock clock,
                  Window window, EventSink& sink);

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
                   model::SyncRecord, model::DriverCallRecord, model::RangeRecord, model::CollectiveRecord,
                   model::AllocationRecord, model::SmallAllocationsRecord, model::AllocatorLevelRecord,
                   model::PoolLevelRecord>;

  // How a kernel's site is shown.
  struct SiteWords {
    std::string name;  // demangled
    std::string grid;  // "[128, 1, 1]"
    std::string block;
    std::optional<Occupancy> occupancy;
  };
  // Where a piece of device work ran, and for which launch.
  struct Place {
    uint32_t device;
    uint32_t context;
    uint32_t stream;
    uint64_t correlation;
    uint64_t graph_node;
  };

  template <typename T>
  void Hold(uint64_t start_ns, uint64_t end_ns, uint64_t order, const T& record);
  // Records as they are read, with times on the reference rank's clock.
  void On(const model::LaunchRecord& r);
  void On(const model::PlanRecord& r) { calls_.Add(r); }
  void On(const model::CollectiveRecord& r);
  void On(const model::RangeRecord& r) { Hold(r.start_ns, r.end_ns, r.id, r); }
  void On(const model::HostSampleRecord& r) {
    stretches_.Add(r, [this](const model::HostStretch& stretch) { Show(stretch); });
  }
  void On(const model::SmallAllocationsRecord& r) { Hold(r.highest_ns, r.end_ns, ++order_, r); }
  void On(const model::KernelRecord& r);
  template <typename T>
  void On(const T& r) {
    if constexpr (requires { r.start_ns; }) {
      Hold(r.start_ns, r.end_ns, ++order_, r);
    } else {
      Hold(r.time_ns, r.time_ns, ++order_, r);
    }
  }
  // A launch of which no work was seen.
  void GiveUp(const model::LaunchTable::Launch& launch);
  // "GPU 0 stream 7", with the program's name for it.
  std::string StreamName(const Place& place) const;
  const model::Thread& ThreadOf(uint32_t id) const;
  const SiteWords& WordsOf(const model::Site& site);

  // Records as they come out of the window, with times on the reference rank's clock.
  void Show(const model::KernelRecord& r);
  void Show(const model::CopyRecord& r);
  void Show(const model::MemsetRecord& r);
  void Show(const model::GraphRunRecord& r);
  void Show(const model::SyncRecord& r);
  void Show(const model::DriverCallRecord& r);
  void Show(const model::HostStretch& stretch);
  void Show(const model::RangeRecord& r);
  void Show(const model::CollectiveRecord& r);
  template <typename T>
  void Show(const T& level) {
    levels_.Apply(level);
  }
  void ShowStep(const model::StepRecord& step);
  void ShowLaunch(const model::LaunchTable::Launch& launch, std::string_view what);

  // Work of the device: adds what all kinds have in common, and the arrow from its launch.
  void ShowWork(Category category, const Place& place, uint64_t start_ns, uint64_t end_ns,
                std::string_view name, std::string_view launched_by);
  void DescribeCalls(model::CallTable::Plan& plan, bool first_work, bool whole);
  void DescribeGeometry(const model::Site& site, const SiteWords& words);
  // With the arguments and arrows that were put.
  void Emit(Category category, uint64_t start_ns, uint64_t end_ns, std::string_view name, TrackKey track,
            const std::string& track_name);
  bool Wants(uint64_t start_ns, uint64_t end_ns);
  void Put(std::string_view key, Value value, bool json = false);
  // For text that is made for this event.
  std::string_view Keep(std::string text);

  const Process& process_;
  const GroupRanks& groups_;
  model::LogReader reader_;
  analysis::AlignedClock clock_;
  Window window_;
  EventSink& sink_;
  const model::Definitions& definitions_ = reader_.definitions();
  std::map<uint32_t, SiteWords> sites_;  // that were shown, by KernelSite
  model::CallTable calls_;
  model::LaunchTable launches_{4 * kReordered};
  MemoryLevels levels_;
  OccupancyLevel occupancy_;
  model::HostStretches stretches_;
  ReorderWindow<Record> held_{kReordered};
  uint64_t order_ = 0;
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
