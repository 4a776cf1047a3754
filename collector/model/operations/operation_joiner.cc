#include "collector/model/operations/operation_joiner.h"

#include <algorithm>

namespace gpuprobe::model {

void OperationJoiner::AddLaunch(const LaunchRecord& launch) {
  CorrelationRing::Slot& slot = ring_.Claim(launch.correlation);
  slot.launched = true;
  slot.launch_ns = launch.time_ns;
  slot.must_match = !launch.may_lack_record;
  slot.thread = launch.thread;
  slot.owner = launch.owner;
  slot.range = launch.range != 0 ? launch.range : launch.fallback_range;
  window_.AddLaunch(launch.correlation, launch.time_ns, launch.thread, batch_);
  told_ = true;
  lowest_launch_ = std::min(lowest_launch_, launch.correlation);
  told_until_ns_ = std::max(told_until_ns_, launch.time_ns);
}

void OperationJoiner::AddPlan(const PlanRecord& record) {
  if (record.graph_node != 0 && record.plan == 0 && record.correlation != 0) {
    // Captured: no record will come, so none is waited for.
    if (CorrelationRing::Slot* slot = ring_.Find(record.correlation); slot != nullptr) Match(*slot);
    return;
  }
  if (record.graph_node != 0) {
    node_plans_.Set(record.graph_node, {record.plan, record.copy}, record.from_correlation);
    collectives_.MarkCaptured(record.plan);
    return;
  }
  CorrelationRing::Slot& slot = ring_.Claim(record.correlation);
  slot.plan = record.plan;
  told_ = true;
  collectives_.AddLaunch(record.plan, record.correlation);
  if (slot.matched) collectives_.AddKernel(record.plan, slot.start_ns, slot.end_ns, true);
}

Operation& OperationJoiner::NextWaiting() {
  if (waiting_.empty() || waiting_.back().batch != batch_) waiting_.emplace_back().batch = batch_;
  return waiting_.back().operations.Next();
}

void OperationJoiner::Wait(const Operation& operation) {
  Waiting& waiting = waiting_.back();
  waiting.lowest = std::min(waiting.lowest, operation.correlation);
  waiting.latest_start_ns = std::max(waiting.latest_start_ns, operation.start_ns);
  ++waiting_count_;
}

void OperationJoiner::Match(CorrelationRing::Slot& slot) {
  // It came after all.
  if (slot.given_up && !slot.matched && slot.must_match) --totals_.without_record;
  slot.matched = true;
}

void OperationJoiner::Join(Operation& operation, CorrelationRing::Slot& slot) {
  const bool kernel =
      operation.kind == OperationKind::kKernel || operation.kind == OperationKind::kCollectiveKernel;
  if (kernel && operation.graph_node == 0 && operation.start_ns >= slot.launch_ns) {
    totals_.launch_delay_ns.Add(operation.start_ns - slot.launch_ns);
  }
  Match(slot);
  slot.start_ns = slot.end_ns == 0 ? operation.start_ns : std::min(slot.start_ns, operation.start_ns);
  slot.end_ns = std::max(slot.end_ns, operation.end_ns);
  if (slot.range != 0) ranges_.AddGpuWork(slot.range, operation.start_ns, operation.end_ns);
  operation.launched = true;
  operation.launch_ns = slot.launch_ns;
  operation.range = slot.range;
  operation.thread = slot.thread;
  window_.Saw(slot.thread, slot.launch_ns);
  ++totals_.joined;
  launch_known_(operation, PlanOf(operation, &slot), slot.owner);
  DescribeCollective(operation);
}

void OperationJoiner::GoWithout(Operation& operation) {
  ++totals_.unattributed;
  operation.launch_ns = operation.start_ns;
  launch_known_(operation, PlanOf(operation, ring_.Find(operation.correlation)), v1::KERNEL_OWNER_NOT_SAID);
  DescribeCollective(operation);
}

uint64_t OperationJoiner::PlanOf(const Operation& operation, const CorrelationRing::Slot* slot) const {
  if (operation.plan != 0) return operation.plan;
  if (operation.graph_node != 0) return node_plans_.PlanOf(operation.graph_node, operation.correlation).plan;
  return slot == nullptr ? 0 : slot->plan;
}

void OperationJoiner::GoWithout(OperationBlocks& operations) {
  operations.ForEach([this](Operation& operation) { GoWithout(operation); });
  window_.Take(operations);
}

bool OperationJoiner::TryJoin(const Operation& operation) {
  CorrelationRing::Slot* slot = ring_.Find(operation.correlation);
  if (slot == nullptr) return false;
  if (slot->plan != 0) {
    collectives_.AddKernel(slot->plan, operation.start_ns, operation.end_ns, slot->launched);
  }
  if (!slot->launched) return false;
  Join(window_.Add(operation), *slot);
  return true;
}

void OperationJoiner::AbandonAll() {
  for (Waiting& waiting : waiting_) GoWithout(waiting.operations);
  waiting_.clear();
  waiting_count_ = 0;
}

// Those of one batch only when the next has come: launches of several threads are reported in no strict
// order.
void OperationJoiner::LeaveEarlier() {
  for (Waiting& waiting : waiting_) {
    if (waiting.batch == batch_) break;
    waiting.lowest = UINT64_MAX;
    waiting.operations.EraseIf([&](Operation& operation) {
      if (operation.correlation >= lowest_launch_) {
        waiting.lowest = std::min(waiting.lowest, operation.correlation);
        return false;
      }
      --waiting_count_;
      GoWithout(window_.Add(operation));
      return true;
    });
  }
  std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.operations.empty(); });
}

void OperationJoiner::RetryWaiting() {
  if (began_late_) LeaveEarlier();
  // Without anything new, nothing has changed for those that wait.
  if (std::exchange(told_, false)) {
    waiting_count_ = 0;
    for (Waiting& waiting : waiting_) {
      waiting.lowest = UINT64_MAX;
      waiting.operations.EraseIf([&](const Operation& operation) {
        if (TryJoin(operation)) return true;
        waiting.lowest = std::min(waiting.lowest, operation.correlation);
        return false;
      });
      waiting_count_ += waiting.operations.size();
    }
    std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.operations.empty(); });
  }
  while (!waiting_.empty() && WaitedEnough(waiting_.front().batch, waiting_.front().latest_start_ns)) {
    waiting_count_ -= waiting_.front().operations.size();
    GoWithout(waiting_.front().operations);
    waiting_.pop_front();
  }
}

void OperationJoiner::DescribeCollective(Operation& operation) const {
  if (operation.kind != OperationKind::kCollectiveKernel || operation.comm != 0) return;
  operation.plan = PlanOf(operation, ring_.Find(operation.correlation));
  const CollectiveTracker::Calls calls = collectives_.CallsOf(operation.plan);
  if (calls.count == 0) return;
  operation.op = calls.op;
  operation.comm = calls.comm;
  operation.calls = calls.count;
  operation.bytes = calls.bytes;
}

void OperationJoiner::AddCollectiveKernel(const KernelRecord& kernel, uint32_t op) {
  Explain({.correlation = kernel.correlation,
           .graph_node = kernel.graph_node,
           .start_ns = kernel.start_ns,
           .end_ns = kernel.end_ns,
           .op = op,
           .batch = batch_});
}

void OperationJoiner::AddCopyInGraph(const CopyRecord& copy) {
  Explain({.correlation = copy.correlation,
           .graph_node = copy.graph_node,
           .start_ns = copy.start_ns,
           .end_ns = copy.end_ns,
           .op = 0,
           .batch = batch_});
}

void OperationJoiner::Explain(const Unexplained& work) {
  if (Explained(work, false)) return;
  if (unexplained_.size() < kMaxWaiting) {
    unexplained_.push_back(work);
  } else if (!Explained(work, true)) {
    LeaveUnexplained(work);
  }
}

// Counts a collective's kernel that no call explains by its name.
void OperationJoiner::LeaveUnexplained(const Unexplained& work) {
  if (work.op != 0) collectives_.AddUnexplained(work.op, work.start_ns, work.end_ns);
}

namespace {

// Whether its launch has not been reported yet: the operation that came with it still waits.
template <typename Waitings, typename Kernel>
bool IsWaiting(const Waitings& waiting, const Kernel& kernel) {
  return std::any_of(waiting.begin(), waiting.end(), [&](const auto& of_batch) {
    return of_batch.batch == kernel.batch && of_batch.operations.Any([&](const Operation& operation) {
      return operation.correlation == kernel.correlation;
    });
  });
}

}  // namespace

// A kernel in a graph needs its launch reported first: by then every earlier update of the graph was, too.
bool OperationJoiner::Explained(const Unexplained& kernel, bool last_word) {
  CorrelationRing::Slot* slot = ring_.Find(kernel.correlation);
  if (kernel.graph_node == 0) {
    if (slot != nullptr && slot->plan == 0 && slot->owner == v1::KERNEL_OWNER_OTHER) return true;
    if (slot == nullptr || slot->plan == 0) return false;
    // The plan made this slot anew: another launch had overwritten the one that the kernel was matched with.
    if (kernel.batch != batch_ && !slot->launched && !slot->matched && !IsWaiting(waiting_, kernel)) {
      slot->matched = true;
      collectives_.AddKernel(slot->plan, kernel.start_ns, kernel.end_ns, true);
    }
    return true;
  }
  if (!last_word && (slot == nullptr || !slot->launched)) return false;
  const CarriedPlan carried = node_plans_.PlanOf(kernel.graph_node, kernel.correlation);
  // Its calls are reported with its launch or in the next batch; otherwise the copy is the program's own.
  if (carried.plan == 0) return kernel.op == 0 && batch_ > kernel.batch + 1;
  collectives_.AddReplayedKernel(carried, kernel.graph_node, kernel.correlation, kernel.start_ns,
                                 kernel.end_ns);
  return true;
}

void OperationJoiner::RetryUnexplained(bool last_word) {
  std::erase_if(unexplained_, [&](const Unexplained& kernel) {
    const bool enough = last_word || WaitedEnough(kernel.batch, kernel.start_ns);
    if (Explained(kernel, enough)) return true;
    if (!enough) return false;
    LeaveUnexplained(kernel);
    return true;
  });
}

bool OperationJoiner::Matched(uint64_t correlation) const {
  const CorrelationRing::Slot* slot = ring_.Find(correlation);
  return slot == nullptr || slot->matched;
}

bool OperationJoiner::Owes(uint64_t correlation) const {
  const CorrelationRing::Slot* slot = ring_.Find(correlation);
  return slot != nullptr && !slot->matched && slot->must_match;
}

void OperationJoiner::GiveUp(uint64_t correlation) {
  CorrelationRing::Slot* slot = ring_.Find(correlation);
  if (slot == nullptr || !slot->launched) return;
  slot->given_up = true;
  if (slot->must_match) ++totals_.without_record;
  if (slot->plan != 0) collectives_.AddLostKernel(slot->plan);
  window_.Add({.correlation = correlation,
               .launch_ns = slot->launch_ns,
               .start_ns = slot->launch_ns,
               .end_ns = slot->launch_ns,
               .range = slot->range,
               .thread = slot->thread,
               .batch = batch_,
               .kind = OperationKind::kUnseen,
               .launched = true});
}

}  // namespace gpuprobe::model
