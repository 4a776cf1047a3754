// Joins device records with the launches that made them, and releases them as operations in launch order.
//
// The two streams arrive in any order and with gaps. A device record that comes before its launch waits; if
// later launches come and its own does not, it becomes an operation without a launch. NCCL's kernels are
// joined with the calls that they carry, by the plan that was launched under their correlation id or captured
// as their graph node. Memory: the launches of the last batches and what waits. Not thread-safe: one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "collector/model/calls/collective_tracker.h"
#include "collector/model/operations/correlation_ring.h"
#include "collector/model/operations/operation.h"
#include "collector/model/operations/operation_blocks.h"
#include "collector/model/operations/operation_window.h"
#include "collector/model/ranges/range_tracker.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/records/graph_node_plans.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class OperationJoiner {
 public:
  // A record stops waiting for its launch after kPatience batches if later launches were reported, and after
  // kLongPatience batches in any case.
  static constexpr uint32_t kPatience = 8;
  static constexpr uint32_t kLongPatience = 64;
  static constexpr size_t kMaxWaiting = 262144;  // device records
  static constexpr size_t kExactDelays = 1024;

  struct Totals {
    uint64_t joined = 0;
    uint64_t unattributed = 0;    // device records whose launch was never seen
    uint64_t late = 0;            // that came too late for the order of launches
    uint64_t without_record = 0;  // launches that must have a record, but none came
    // From the launch's API entry to the kernel's start; kernels in graphs wait for one another and are left
    // out.
    Distribution launch_delay_ns{kExactDelays};

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, joined, unattributed, late, without_record, launch_delay_ns);
    }
  };

  // Called once for each device record, when its launch is known or never will be. `plan`: the NCCL calls
  // that it carries, `owner`: v1::KernelOwner.
  using LaunchKnown = std::function<void(Operation&, uint64_t plan, uint32_t owner)>;

  // Both receive the device time of their plans and ranges.
  OperationJoiner(
      CollectiveTracker& collectives, RangeTracker& ranges,
      LaunchKnown launch_known = [](Operation&, uint64_t, uint32_t) {})
      : collectives_(collectives), ranges_(ranges), launch_known_(std::move(launch_known)) {}

  // Recording began while the process ran: records of earlier launches come, too, and are not waited for.
  void BeginsLate() { began_late_ = true; }
  // The records that follow belong to this batch; batches are numbered from 1.
  void BeginBatch(uint32_t batch) { batch_ = batch; }
  void AddLaunch(const LaunchRecord& launch);
  void AddPlan(const PlanRecord& record);
  // Adds the operation that `make()` returns. It is constructed in its final place: a copy right after the
  // writes would stall on them, for each record of a run.
  template <typename Maker>
  void Add(uint64_t correlation, Maker make);
  // An NCCL kernel with `op` in its name; call in addition to Add. Looks for its calls.
  void AddCollectiveKernel(const KernelRecord& kernel, uint32_t op);
  // The copy may belong to a one-sided call, which is known once its launch is reported.
  void AddCopyInGraph(const CopyRecord& copy);
  // `hand_on(operation)` is called in launch order, also by Finish and Flush.
  template <typename HandOn>
  void EndBatch(HandOn hand_on);
  // No more launches will be reported.
  template <typename HandOn>
  void Flush(HandOn hand_on);
  // Nothing more will come.
  template <typename HandOn>
  void Finish(HandOn hand_on);
  // For a process that did not exit cleanly: releases everything received. See OperationWindow::FinishSoFar.
  // `lost_some`: records are known to be lost, so that one that is missing need not be still to come.
  template <typename HandOn>
  bool FinishSoFar(bool goes_on, bool lost_some, HandOn hand_on);
  // Which calls a collective's kernel carries, as far as that is known by now.
  void DescribeCollective(Operation& operation) const;

  const Totals& totals() const { return totals_; }
  // At the end of a batch: launches before this time have their records, or will get none. 0: this process
  // reports no launches.
  uint64_t SettledUntilNs() const { return std::min(told_until_ns_, window_.OldestOpenNs(told_until_ns_)); }
  // The latest launches, and whether any of their work has ended.
  const CorrelationRing& launches() const { return ring_; }

 private:
  // Device records of one batch whose launch has not arrived.
  struct Waiting {
    uint32_t batch = 0;
    uint64_t lowest = UINT64_MAX;  // correlation
    uint64_t latest_start_ns = 0;
    OperationBlocks operations;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, batch, lowest, latest_start_ns, operations);
    }
  };
  // An NCCL kernel without a plan so far: the plan may come with one of the next batches. After these it is
  // recorded without calls.
  struct Unexplained {
    uint64_t correlation;
    uint64_t graph_node;
    uint64_t start_ns;
    uint64_t end_ns;
    uint32_t op;
    uint32_t batch;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, correlation, graph_node, start_ns, end_ns, op, batch);
    }
  };

  // Room for one more at the end of those that wait.
  Operation& NextWaiting();
  void Wait(const Operation& operation);
  // Its launch was reported.
  void Join(Operation& operation, CorrelationRing::Slot& slot);
  // Its launch will not be reported any more.
  void GoWithout(Operation& operation);
  void GoWithout(OperationBlocks& operations);
  bool TryJoin(const Operation& operation);
  // Its record is there, or will never be needed.
  void Match(CorrelationRing::Slot& slot);
  void AbandonAll();
  void RetryWaiting();
  // Lets go of records whose launches were made before recording began.
  void LeaveEarlier();
  // `last_word`: nothing more will be reported about its launch.
  void Explain(const Unexplained& work);
  void LeaveUnexplained(const Unexplained& work);
  bool Explained(const Unexplained& kernel, bool last_word);
  void RetryUnexplained(bool last_word);
  bool WaitedEnough(uint32_t since_batch, uint64_t start_ns) const {
    const bool told = told_until_ns_ == 0 || told_until_ns_ >= start_ns;  // 0: no launches reported
    return batch_ >= since_batch + (told ? kPatience : kLongPatience);
  }
  // The plan that it carries, as far as that is known; `slot`: its launch's, null if there is none.
  uint64_t PlanOf(const Operation& operation, const CorrelationRing::Slot* slot) const;
  // The launch's record came, or the launch is forgotten.
  bool Matched(uint64_t correlation) const;
  // It must have a record, and has none.
  bool Owes(uint64_t correlation) const;
  // A launch's record was lost: a replacement takes its place in the order of launches.
  void GiveUp(uint64_t correlation);

  CollectiveTracker& collectives_;
  RangeTracker& ranges_;
  LaunchKnown launch_known_;
  Totals totals_;
  uint32_t batch_ = 0;
  CorrelationRing ring_;
  std::deque<Waiting> waiting_;  // by batch
  size_t waiting_count_ = 0;
  bool told_ = false;           // launches or plans came since the waiting records were last looked at
  uint64_t told_until_ns_ = 0;  // the latest launch that was reported
  bool began_late_ = false;
  uint64_t lowest_launch_ = UINT64_MAX;  // correlation; CUPTI counts them upwards
  OperationWindow window_;
  GraphNodePlans node_plans_;
  std::vector<Unexplained> unexplained_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(collectives_, ranges_, launch_known_, waiting_count_), totals_, batch_,
                    ring_, waiting_, window_, node_plans_, unexplained_, told_until_ns_, told_, began_late_,
                    lowest_launch_);
    waiting_count_ = 0;
    for (const Waiting& waiting : waiting_) waiting_count_ += waiting.operations.size();
  }
};

template <typename Maker>
void OperationJoiner::Add(uint64_t correlation, Maker make) {
  CorrelationRing::Slot* slot = ring_.Find(correlation);
  const bool launched = slot != nullptr && slot->launched;
  const bool waits = !launched && waiting_count_ < kMaxWaiting;
  Operation& operation = *new (waits ? &NextWaiting() : &window_.Next()) Operation(make());
  operation.batch = batch_;
  DescribeCollective(operation);
  // A plan's time is a hull: adding the same kernel twice changes nothing.
  if (slot != nullptr && slot->plan != 0)
    collectives_.AddKernel(slot->plan, operation.start_ns, operation.end_ns, launched);
  if (waits) return Wait(operation);
  launched ? Join(operation, *slot) : GoWithout(operation);
}

template <typename HandOn>
void OperationJoiner::EndBatch(HandOn hand_on) {
  RetryWaiting();
  RetryUnexplained(false);
  uint64_t oldest = UINT64_MAX;
  for (const Waiting& waiting : waiting_) oldest = std::min(oldest, waiting.lowest);
  window_.EndBatch(
      batch_, oldest, [this](uint64_t correlation) { return Matched(correlation); },
      [this](uint64_t correlation) { GiveUp(correlation); }, hand_on);
  totals_.late = window_.late();
}

template <typename HandOn>
void OperationJoiner::Flush(HandOn hand_on) {
  window_.Finish([this](uint64_t correlation) { return Matched(correlation); },
                 [this](uint64_t correlation) { GiveUp(correlation); }, hand_on);
  totals_.late = window_.late();
}

template <typename HandOn>
void OperationJoiner::Finish(HandOn hand_on) {
  AbandonAll();
  Flush(hand_on);
  RetryUnexplained(true);
}

template <typename HandOn>
bool OperationJoiner::FinishSoFar(bool goes_on, bool lost_some, HandOn hand_on) {
  AbandonAll();
  const bool cut = window_.FinishSoFar(
      goes_on, [this](uint64_t correlation) { return Matched(correlation); },
      [&](uint64_t correlation) { return !lost_some && Owes(correlation); },
      [this](uint64_t correlation) { GiveUp(correlation); }, hand_on);
  totals_.late = window_.late();
  RetryUnexplained(true);
  return cut;
}

}  // namespace gpuprobe::model
