// Everything known about one profiled process: its identity, names, and running totals over every record it
// sent.
//
// Reads batches and hands each row to the topics that keep something of it: memory/process_memory.h,
// operations/device_work.h, operations/operation_joiner.h, ranges/range_tracker.h,
// calls/collective_tracker.h, steps/step_tracker.h. Memory is bounded by the number of distinct names,
// kernels, ranges and sizes, not by the length of the run. Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/model/calls/collective_tracker.h"
#include "collector/model/facts/delivery.h"
#include "collector/model/facts/process_totals.h"
#include "collector/model/memory/memory_ledger.h"
#include "collector/model/memory/process_memory.h"
#include "collector/model/operations/device_work.h"
#include "collector/model/operations/operation.h"
#include "collector/model/operations/operation_joiner.h"
#include "collector/model/process/captures.h"
#include "collector/model/process/device_health.h"
#include "collector/model/process/device_steps.h"
#include "collector/model/process/driver_calls.h"
#include "collector/model/process/host_frames.h"
#include "collector/model/process/host_progress.h"
#include "collector/model/process/process_condition.h"
#include "collector/model/process/roll_up.h"
#include "collector/model/ranges/range_tracker.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_tracker.h"
#include "collector/records/process_clock.h"
#include "collector/records/process_names.h"
#include "collector/records/rows.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

// What a process reports to the job, which compares processes.
struct ProcessEvents {
  CollectiveEvents collectives;
  // A batch was applied.
  std::function<void()> applied = [] {};
  // Became known, or known in more detail.
  std::function<void(const v1::Communicator&)> communicator = [](const v1::Communicator&) {};
  // Level calls. The communicator is one of the process's.
  std::function<void(const TracedStepRecord&)> traced_step = [](const TracedStepRecord&) {};
  std::function<void(const v1::Communicator&, const TracedCallRecord&)> traced_call =
      [](const v1::Communicator&, const TracedCallRecord&) {};
  std::function<void(const v1::Communicator&, const CallTimeRecord&)> call_time =
      [](const v1::Communicator&, const CallTimeRecord&) {};
  // A roll-up brought what its maker knew of the process.
  std::function<void(const v1::ProcessState&)> state = [](const v1::ProcessState&) {};
};

class ProcessModel {
 public:
  ProcessModel(v1::Hello hello, ProcessEvents events);
  ProcessModel(const ProcessModel&) = delete;  // its parts refer to each other by address
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
  // The same of a GPU that it uses.
  void ApplyDevice(const v1::DeviceObservation& observation);
  // The collector's notes on its connection.
  void ApplyConnection(const v1::ConnectionState& connection) { delivery_.OnConnection(connection); }
  void MarkCutOff() { delivery_.MarkCutOff(); }
  // Nothing more will be read; before Finish.
  void EndDelivery() { delivery_.Finish(); }
  // Settles everything that still waits for records; then the totals are final. `goes_on`: the process is
  // still running; totals are provisional and leave out collectives in flight.
  void Finish(bool goes_on = false);

  const v1::Hello& hello() const { return hello_; }
  // From the start, or since another profiler left CUPTI to the probe.
  bool has_gpu_times() const {
    return hello_.timing_source() != v1::TIMING_SOURCE_NONE || totals_.self.yields() > 0;
  }
  const v1::Identity& identity() const { return hello_.identity(); }
  const v1::Versions& versions() const { return versions_; }
  EndState end_state() const { return delivery_.end_state(); }
  // Sequence number of the last batch that was applied.
  uint64_t last_sequence() const { return delivery_.last_sequence(); }
  // Whether this batch was applied before: a client that lost its connection sends again what was not
  // acknowledged.
  bool Knows(const v1::Batch& batch) const {
    return hello_.instance() != 0 && batch.sequence() != 0 && batch.sequence() <= last_sequence();
  }
  // Also resolves operations that only kernels name (collective_kernels.h).
  const std::string& String(uint32_t id) const { return names_.String(id); }
  // Number of names that were merged instead of kept.
  uint64_t OtherNames() const { return names_.other_names(); }

  static constexpr uint64_t kShortKernelNs = ProcessTotals::kShortKernelNs;
  using Totals = ProcessTotals;
  const Totals& totals() const { return totals_; }
  const std::vector<std::unique_ptr<KernelTotals>>& kernels() const { return devices_.kernels(); }
  uint64_t misnamed_kernels() const { return devices_.misnamed(); }
  // See DeviceWork.
  template <typename Visitor>
  void ForEachSite(Visitor visit) const {
    devices_.ForEachSite(visit);
  }
  const std::map<uint32_t, DeviceTotals>& devices() const { return devices_.devices(); }
  const std::array<MemoryLedger::Kind, MemoryLedger::kKinds>& memory() const { return ledger().kinds(); }
  const MemoryLedger& ledger() const { return memory_.ledger(); }
  const std::map<uint32_t, AllocatorTotals>& allocator() const { return memory_.allocator(); }
  std::string HighWaterRange(size_t kind) const { return memory_.HighWaterRange(kind); }
  // Names of the ranges around `range` and of itself, joined by '/'; empty for 0. "?" stands for a name that
  // was not reported. Known for ranges in which memory was allocated or refused.
  std::string RangePath(uint64_t range) const { return memory_.RangePath(range); }
  const RangeTracker& ranges() const { return ranges_; }
  const CollectiveTracker& collectives() const { return collectives_; }
  const HostProgress& progress() const { return progress_; }
  const DriverCalls& driver_calls() const { return driver_calls_; }
  const ProcessCondition& condition() const { return condition_; }
  // At levels idle and calls.
  const Captures& captures() const { return captures_; }
  // Levels idle and calls: what was launched is recorded while a capture goes on, and not else.
  bool records_on_demand() const { return hello_.level() != v1::RECORDING_LEVEL_FULL; }
  // By device ordinal; none of those that NVML does not know.
  const std::map<uint32_t, DeviceHealth>& health() const { return health_; }
  // Model time never goes back. SetBackAt: how far the wall clock was behind it. Realtime: what the wall
  // clock showed.
  uint64_t SetBackAt(uint64_t time_ns) const { return clock_.SetBackAt(time_ns); }
  uint64_t Realtime(uint64_t time_ns) const { return time_ns == 0 ? 0 : time_ns - SetBackAt(time_ns); }
  // How far its clock had been set forward when the records of this batch (from 0) were taken.
  int64_t ClockShift(uint64_t batch) const { return clock_.ShiftIn(batch); }
  // How far CUPTI's clock is ahead of the process's own, which model times are based on.
  int64_t DeviceAheadNs() const { return clock_.device_ahead_ns(); }
  const ProcessClock& clock() const { return clock_; }
  // The latest launches, and whether any of their work has ended.
  const CorrelationRing& launches() const { return joiner_.launches(); }
  const OperationJoiner::Totals& joins() const { return joiner_.totals(); }
  // On the process's first device (device_steps.h).
  const StepTracker& steps() const { return steps_.first(); }
  const DeviceSteps& device_steps() const { return steps_; }
  // Moments at which its host was sampled: while it launched, too.
  uint64_t host_samples() const { return totals_.host_samples; }
  // Call first: the steps that another replay learned.
  void KnowSteps(DeviceSteps::Definitions known) { steps_.Know(std::move(known)); }
  void KnowWarmup(uint64_t steps) { steps_.KnowWarmup(steps); }
  void KeepPlaced() { steps_.KeepPlaced(); }
  // Call first: what comes after the batch with this number is rolled up, too (roll_up.h).
  void KeepRollUp(uint64_t after);
  // The roll-up of what came since the last call, and of what its end settled.
  v1::Batch TakeRollUp();
  // How many steps the next one has.
  size_t StepsToRollUp() const { return steps_.CompletedSince(); }
  // nullptr if it was never described.
  const v1::Communicator* FindCommunicator(uint32_t id) const { return names_.FindCommunicator(id); }
  // Where in device_steps() the device of this communicator is.
  size_t PlaceOf(uint32_t comm) const {
    const v1::Communicator* known = FindCommunicator(comm);
    if (known == nullptr || known->device() < 0) return 0;
    return steps_.PlaceOf(static_cast<uint32_t>(known->device()));
  }
  // By Communicator.id. `time_ns`: when it was first reported.
  const absl::flat_hash_map<uint32_t, v1::Communicator>& communicators() const {
    return names_.communicators();
  }

 private:
  absl::Status ApplyBatch(const v1::Batch& batch);
  absl::Status ApplyRollUp(const v1::Batch& batch);
  absl::Status ApplyArrivals(const v1::Batch& batch);
  absl::Status ApplyTraceOfRollUp(const v1::Batch& batch);
  absl::Status ApplyDefinitions(const v1::Batch& batch);
  absl::Status ApplyHostRecords(const v1::Batch& batch);
  // What the host did besides launching.
  absl::Status ApplyHostSamples(const v1::Batch& batch);
  absl::Status ApplyMemoryRecords(const v1::Batch& batch);
  absl::Status ApplyAllocatorRecords(const v1::Batch& batch);
  absl::Status ApplyDeviceRecords(const v1::Batch& batch);
  void EndBatch(const v1::Batch& batch);
  // Hands each row of a batch to visit(record), with its times on the line.
  template <typename Record, typename Visitor>
  absl::Status Read(const v1::Batch& batch, const Visitor& visit);
  template <typename Record>
  uint32_t StreamOf(const Record& r) const;

  // Rows with their times on the line.
  void On(const LaunchRecord& r);
  void On(const PlanRecord& r);
  void On(const RangeRecord& r);
  void On(const CollectiveRecord& r);
  void On(const OverheadRecord& r);
  void On(const SyncRecord& r);
  void On(const KernelRecord& r);
  void On(const CopyRecord& r);
  void On(const GraphRunRecord& r);
  void On(const MemsetRecord& r);
  // A row about memory, which has a single time.
  template <typename Record>
  void OnMemory(const Record& r, uint64_t start_ns, uint64_t end_ns);

  template <typename Record>
  void Join(const Record& r);
  // The operation's launch is known, or never will be.
  void OnLaunchKnown(Operation& operation, uint64_t plan, uint32_t owner);
  // Records may have names of unloaded kernels.
  bool NamesAreUncertain() const;
  // Everything that reads operations in launch order gets them here.
  void OnOperation(Operation& operation);
  absl::Status ApplyTrace(const v1::Batch& batch);
  void Issued(const CollectiveRecord& call);
  void Finished(uint32_t comm, uint64_t seq, uint64_t end_ns);
  void Settled(SettledPlan plan);
  void Traced(const TracedStepRecord& step);
  void Traced(const TracedCallRecord& call);
  void Traced(const CallTimeRecord& time);
  // Passes completed steps to the parts that keep statistics per step.
  void EndSteps();

  ProcessEvents events_;
  v1::Hello hello_;
  v1::Versions versions_;
  Totals totals_;
  HostProgress progress_;
  ProcessCondition condition_;
  std::map<uint32_t, DeviceHealth> health_;
  DriverCalls driver_calls_;
  Captures captures_;
  ProcessNames names_;
  ProcessClock clock_;
  DeviceWork devices_{names_, clock_, totals_};
  DeviceSteps steps_{names_, devices_};
  HostFrames frames_;
  Delivery delivery_;
  RangeTracker ranges_;
  CollectiveTracker collectives_;
  OperationJoiner joiner_{collectives_, ranges_, [this](Operation& operation, uint64_t plan, uint32_t owner) {
                            OnLaunchKnown(operation, plan, owner);
                          }};
  ProcessMemory memory_{names_};
  std::unique_ptr<RollUp> roll_up_;  // nullptr: none is made
  uint64_t rolled_up_ = 0;           // number of the last batch that was rolled up before

  // Forgets everything: a state is read into a new model. Others know this one by its address.
  void BeginAnew();

  friend StateAccess;
  friend class JobModel;
  // What changes with every batch.
  template <typename Archive>
  void VisitLive(Archive& archive) {
    archive(totals_, progress_, clock_, captures_);
  }
  template <typename Archive>
  void Visit(Archive& archive) {
    // The names come first: others look theirs up when they are loaded.
    archive.Members(this, Rebuilt(events_, hello_, roll_up_, rolled_up_), versions_, totals_, progress_,
                    condition_, health_, driver_calls_, captures_, names_, clock_, devices_, steps_, frames_,
                    delivery_, ranges_, collectives_, joiner_, memory_);
  }
};

}  // namespace gpuprobe::model
