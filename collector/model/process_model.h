// Everything known about one profiled process: its identity, names, and running totals over every record it
// sent.
//
// Separate from the job because a process is decoded on its own; only collectives are compared across ranks.
// Memory is bounded by the number of distinct names, kernels, ranges and sizes, not by the length of the run.
// Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/model/clock_steps.h"
#include "collector/model/collective_tracker.h"
#include "collector/model/distribution.h"
#include "collector/model/host_progress.h"
#include "collector/model/interval_union.h"
#include "collector/model/level_history.h"
#include "collector/model/level_peaks.h"
#include "collector/model/memory_ledger.h"
#include "collector/model/memory_lifetimes.h"
#include "collector/model/operation.h"
#include "collector/model/operation_joiner.h"
#include "collector/model/process_condition.h"
#include "collector/model/range_paths.h"
#include "collector/model/range_tracker.h"
#include "collector/model/records.h"
#include "collector/model/step_marker.h"
#include "collector/model/step_tracker.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class ContinuousClock;

struct KernelTotals {
  // Per kernel name; hundreds of names with hundreds of thousands of samples each must stay small, for each
  // of a thousand ranks.
  static constexpr size_t kExactLimit = 1024;
  uint32_t name = 0;
  uint32_t token = 0;  // coarse, of StepTracker
  Distribution time_ns{kExactLimit};
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

struct CopyTotals {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;  // sum, what bandwidth is computed from
  IntervalUnion busy;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

// Copies whose host side is pageable memory: they are staged, and the host waits for most of them.
struct PageableTotals {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

struct SyncTotals {
  uint64_t count = 0;
  uint64_t duration_ns = 0;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

struct OverheadTotals {
  uint64_t count = 0;
  uint64_t duration_ns = 0;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

struct DeviceTotals {
  v1::Device info;  // ordinal only, if the process never described it
  // Work launched in order overlaps little: few intervals are enough, for each of a thousand ranks.
  static constexpr size_t kBusyIntervals = 2048;
  uint64_t kernels = 0;
  IntervalUnion busy{kBusyIntervals};  // kernels
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

struct LaunchGeometry {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  friend bool operator==(const LaunchGeometry&, const LaunchGeometry&) = default;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

enum class EndState : uint8_t { kConnected, kSaidBye, kSaidByeIncomplete, kCutOff };

// PyTorch's caching allocator on one device.
struct AllocatorTotals {
  uint64_t allocated_bytes = 0;  // at the last sample
  uint64_t reserved_bytes = 0;
  uint64_t peak_allocated_bytes = 0;
  uint64_t peak_reserved_bytes = 0;
  uint64_t refusals = 0;
  AllocatorRefusalRecord last_refusal{};
  LevelHistory allocated;
  LevelPeaks peaks;  // of it
  MemoryLifetimes tensors;
  uint64_t tensors_told = 0;  // handed out and taken back
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

// What a process reports to the job, which compares processes.
struct ProcessEvents {
  CollectiveEvents collectives;
  // Became known, or known in more detail.
  std::function<void(const v1::Communicator&)> communicator = [](const v1::Communicator&) {};
};

class ProcessModel {
 public:
  ProcessModel(v1::Hello hello, ProcessEvents events);
  ~ProcessModel();
  ProcessModel(const ProcessModel&) = delete;  // its parts refer to it by address
  ProcessModel& operator=(const ProcessModel&) = delete;

  // Before anything else.
  void SetStepMarker(const StepMarker& marker);
  // A later Hello of the same process (it came back after a lost connection).
  void Rejoin(const v1::Hello& hello);
  // InvalidArgument when the batch contradicts the schema; what came before in it may have been counted.
  absl::Status Apply(const v1::Batch& batch);
  void ApplyBye(const v1::Bye& bye);
  // The collector's observations of it from outside.
  void ApplyObservation(const v1::ProcessObservation& observation);
  void MarkCutOff();
  // Settles what waits for more. Afterwards the totals are final. `goes_on`: they are what there is so far,
  // of a process that goes on: collectives under way do not count.
  void Finish(bool goes_on = false);
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h

  const v1::Hello& hello() const { return hello_; }
  // From the start, or since another profiler left CUPTI to the probe.
  bool has_gpu_times() const {
    return hello_.timing_source() != v1::TIMING_SOURCE_NONE || totals_.self.yields() > 0;
  }
  const v1::Identity& identity() const { return hello_.identity(); }
  const v1::Versions& versions() const { return versions_; }
  EndState end_state() const { return end_state_; }
  // Sequence number of the last batch that was applied.
  uint64_t last_sequence() const { return last_sequence_; }
  // Whether this batch was applied before: a client that lost its connection sends again what was not
  // acknowledged.
  bool Knows(const v1::Batch& batch) const {
    return hello_.instance() != 0 && batch.sequence() != 0 && batch.sequence() <= last_sequence_;
  }
  // Also resolves operations that only kernels name (collective_kernels.h).
  const std::string& String(uint32_t id) const;

  // A launch costs the host 2 to 5 us: below this the device is likely to run dry between kernels.
  static constexpr uint64_t kShortKernelNs = 10'000;

  // All totals are public to analysis as one read-only structure.
  struct Totals {
    uint64_t records = 0;  // of every kind, as received
    uint64_t batches = 0;
    uint64_t batches_missing = 0;    // gaps in the sequence numbers
    uint64_t records_missing = 0;    // in batches that were sent and never came
    uint64_t records_elsewhere = 0;  // before these: another collector's run has them
    uint64_t wire_bytes = 0;
    uint64_t kernels = 0;
    uint64_t graph_kernels = 0;
    uint64_t short_kernels = 0;  // that took less than kShortKernelNs, and their time
    uint64_t short_kernel_ns = 0;
    uint64_t reversed_times = 0;  // records whose end is before their start
    uint64_t launches = 0;
    uint64_t marks = 0;
    uint64_t ranges_unclosed = 0;
    uint64_t memsets = 0;
    uint64_t memset_bytes = 0;
    uint64_t memset_ns = 0;
    uint64_t first_ns = UINT64_MAX;  // of any record
    uint64_t last_ns = 0;
    uint64_t last_clock_ns = 0;        // of the last batch
    int64_t clock_step_ns = 0;         // largest change of REALTIME against MONOTONIC
    std::array<CopyTotals, 6> copies;  // by v1::CopyDirection
    std::array<SyncTotals, 5> syncs;   // by v1::SyncKind
    std::array<OverheadTotals, v1::OverheadKind_ARRAYSIZE> overheads;  // by v1::OverheadKind
    PageableTotals pageable_h2d;
    PageableTotals pageable_d2h;
    std::map<int, uint64_t> losses;  // by v1::LossReason, cumulative as the process says
    v1::SelfReport self;
    template <typename Archive>
    void Visit(Archive& archive);
  };
  const Totals& totals() const { return totals_; }
  const std::vector<std::unique_ptr<KernelTotals>>& kernels() const { return kernels_; }
  // Visits (name, geometry, calls) of everything that was launched: a kernel once for each geometry, device
  // and stream.
  template <typename Visit>
  void ForEachSite(Visit visit) const {
    for (const Site& site : sites_) {
      if (site.kernel != nullptr && site.calls > 0) visit(site.kernel->name, site.geometry, site.calls);
    }
  }
  const std::map<uint32_t, DeviceTotals>& devices() const { return devices_; }
  const std::array<MemoryLedger::Kind, MemoryLedger::kKinds>& memory() const { return ledger_.kinds(); }
  const MemoryLedger& ledger() const { return ledger_; }
  const std::map<uint32_t, AllocatorTotals>& allocator() const { return allocator_; }
  std::string HighWaterRange(size_t kind) const;
  // Names of the ranges around `range` and of itself, joined by '/'; empty for 0. "?" stands for a name that
  // was not reported. Known for ranges in which memory was allocated or refused.
  std::string RangePath(uint64_t range) const;
  const RangeTracker& ranges() const { return ranges_; }
  const CollectiveTracker& collectives() const { return collectives_; }
  const HostProgress& progress() const { return progress_; }
  const ProcessCondition& condition() const { return condition_; }
  // Times of the model are on one line, although the clock may have been set back: by how much it was behind
  // the line then, and what it said.
  uint64_t SetBackAt(uint64_t time_ns) const;
  uint64_t Realtime(uint64_t time_ns) const { return time_ns == 0 ? 0 : time_ns - SetBackAt(time_ns); }
  // By how much its clock had been stepped forward when the records of this batch, from 0, were taken.
  int64_t ClockShift(uint64_t batch) const;
  // The latest launches, and whether anything of them has ended.
  const CorrelationRing& launches() const { return joiner_.launches(); }
  const OperationJoiner::Totals& joins() const { return joiner_.totals(); }
  const StepTracker& steps() const { return steps_; }
  // nullptr if it was never described.
  const v1::Communicator* FindCommunicator(uint32_t id) const;
  // By Communicator.id. `time_ns`: when it was first reported.
  const absl::flat_hash_map<uint32_t, v1::Communicator>& communicators() const { return communicators_; }

 private:
  struct Site {
    KernelTotals* kernel = nullptr;
    DeviceTotals* device = nullptr;
    uint32_t collective_op = 0;  // of a kernel of NCCL's, by its name
    StepTracker::Token token;
    uint8_t roles = 0;
    uint32_t stream = 0;
    uint64_t calls = 0;
    LaunchGeometry geometry;
  };

  template <typename Archive>
  void VisitSites(Archive& archive);
  absl::Status ApplyDefinitions(const v1::Batch& batch);
  absl::Status ApplyHostRecords(const v1::Batch& batch);
  absl::Status ApplyAllocatorRecords(const v1::Batch& batch);
  absl::Status ApplyDeviceRecords(const v1::Batch& batch);
  // By how much the clock was stepped before this batch was sealed, and since the one before.
  int64_t ClockStepOf(const v1::Batch& batch) const;
  void ApplyClockAndLosses(const v1::Batch& batch);
  template <typename Losses>
  void ApplyLosses(const Losses& losses);
  // The process has sent `sent` records in all, `here` of them in the batch at hand.
  void CountMissing(uint64_t sent, uint64_t here);
  DeviceTotals& DeviceFor(uint32_t ordinal);
  void ApplyHostState(const v1::Batch& batch);
  void Finished(uint32_t comm, uint64_t seq, uint64_t end_ns);
  bool Observe(uint64_t start_ns, uint64_t end_ns);
  // Hands each row of a batch to visit(record), its times on the line.
  template <typename Record, typename Visitor>
  absl::Status Read(const v1::Batch& batch, const Visitor& visit);
  template <typename Record>
  uint32_t StreamOf(const Record& r) const;
  void Join(Operation& operation);
  // Everything that reads operations in launch order gets them here.
  void OnOperation(Operation& operation);
  // By its name, and the user's marker.
  uint8_t RolesOf(const std::string& kernel) const;
  const Site& SiteOf(const Operation& operation) const;
  StepOperation StepOperationOf(const Operation& operation);
  // Hands steps that are over to those who account by step.
  void EndSteps();
  void ResolveHighWaterRanges();

  ProcessEvents events_;
  v1::Hello hello_;
  v1::Versions versions_;
  Totals totals_;
  HostProgress progress_;
  ProcessCondition condition_;
  EndState end_state_ = EndState::kConnected;
  uint64_t last_sequence_ = 0;
  uint64_t records_sent_ = 0;  // by the process, with the last batch
  int64_t clock_offset_ns_ = 0;
  ClockSteps clock_steps_;
  std::unique_ptr<ContinuousClock> line_;
  std::vector<std::pair<uint64_t, int64_t>> clock_shifts_;  // from which batch on, by how much in all
  bool clock_known_ = false;

  std::vector<std::string> strings_;
  std::vector<bool> point_to_point_;   // by StringDef of the operation
  std::vector<bool> main_thread_;      // by ThreadDef
  std::vector<uint8_t> thread_roles_;  // by ThreadDef
  std::vector<Site> sites_;
  std::vector<std::unique_ptr<KernelTotals>> kernels_;
  absl::flat_hash_map<uint32_t, KernelTotals*> kernel_by_name_;
  std::map<uint32_t, DeviceTotals> devices_;
  absl::flat_hash_map<uint32_t, v1::Communicator> communicators_;
  StepTracker steps_;
  StepMarker marker_;
  uint64_t marked_calls_ = 0;      // of the marker's operation, since the last one that ended a step
  uint64_t last_correlation_ = 0;  // of the last operation in launch order
  RangeTracker ranges_;
  CollectiveTracker collectives_;
  OperationJoiner joiner_{collectives_, ranges_};
  MemoryLedger ledger_;
  RangePaths range_paths_;
  std::map<uint32_t, AllocatorTotals> allocator_;  // by device
  struct HighWaterName {
    uint64_t range = 0;
    PhaseNode::Key name{0, 0};
    template <typename Archive>
    void Visit(Archive& archive);
  };
  std::array<HighWaterName, MemoryLedger::kKinds> high_water_names_;
};

}  // namespace gpuprobe::model
