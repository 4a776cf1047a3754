// Which members make up a model's state: each class names them once, for saving and for loading.
//
// Separate from the classes because a state is saved and loaded in one place (model_state.cc), and because a
// test walks over the same lists: a member that is neither named nor said to be rebuilt fails it
// (tests/collector/model/state_members_test.cc).
#pragma once

#include <algorithm>

#include "collector/model/collective_kernels.h"
#include "collector/model/continuous_clock.h"
#include "collector/model/job_model.h"
#include "collector/model/state_archive.h"
#include "collector/model/warmup.h"
#include "collector/model/work_roles.h"

namespace gpuprobe::model {

template <typename Archive>
void Distribution::Visit(Archive& archive) {
  constexpr size_t kMaxBuckets = size_t{64} << 7;
  archive(count_, total_, min_, max_, squares_, samples_, buckets_, first_bucket_);
  archive.Rebuilt(exact_limit_);  // the owner's
  archive.Require(buckets_.size() <= kMaxBuckets && first_bucket_ <= kMaxBuckets &&
                  (count_ == 0 || min_ <= max_));
  archive.Require(buckets_.empty() ? samples_.size() == count_ : samples_.empty());
}

template <size_t kMost>
template <typename Archive>
void BlockSums<kMost>::Visit(Archive& archive) {
  constexpr uint32_t kMaxShift = 63;
  archive(shift_, sums_);
  archive.Require(shift_ <= kMaxShift && sums_.size() <= kMost);
  if (!archive.ok()) *this = BlockSums();
}

template <typename Archive>
void StepBlocks::Visit(Archive& archive) {
  archive(steps_, parts_);
}

template <typename Archive>
void CallBlocks::First::Visit(Archive& archive) {
  archive(process, end_ns);
}

template <typename Archive>
void CallBlocks::Visit(Archive& archive) {
  archive(calls_, transfer_ns_, first_);
  archive.Require(first_.size() <= kMost && first_.size() == transfer_ns_.At(transfer_ns_.shift()).size());
  if (!archive.ok()) *this = CallBlocks();
}

template <typename Archive>
void IntervalUnion::Interval::Visit(Archive& archive) {
  archive(start_ns, end_ns);
}

template <typename Archive>
void IntervalUnion::Visit(Archive& archive) {
  archive(merged_, tail_, frontier_ns_, forgotten_ns_, clipped_ns_);
  archive.Rebuilt(limit_);  // the owner's
  archive.Require(tail_.size() <= kTail);
  for (size_t i = 0; i < merged_.size(); ++i) {
    archive.Require(merged_[i].start_ns < merged_[i].end_ns &&
                    (i == 0 || merged_[i - 1].end_ns < merged_[i].start_ns));
    if (!archive.ok()) return merged_.clear();
  }
}

template <typename Archive>
void CorrelationRing::Slot::Visit(Archive& archive) {
  archive(correlation, range, launch_ns, plan, start_ns, end_ns, thread, launched, matched, given_up,
          must_match);
}

template <typename Archive>
void CorrelationRing::Visit(Archive& archive) {
  uint64_t size = slots_.size();
  uint64_t count = used_;
  archive(size, count);
  archive.Rebuilt(slots_, used_);
  if constexpr (Archive::kReads) {
    archive.Require(size >= kFirstSlots && size <= kMaxSlots && (size & (size - 1)) == 0 && count <= size);
    archive.Require(size == kFirstSlots || size < count * 2 * kMaxSlotsPerLaunch);
    if (!archive.ok()) return;
    slots_.assign(size, Slot{});
    used_ = 0;
    for (Slot slot; count > 0 && archive.ok(); --count) {
      archive(slot);
      slot.used = true;
      Slot& place = slots_[slot.correlation & (size - 1)];
      if (!place.used) ++used_;
      place = slot;
    }
  } else {
    for (Slot& slot : slots_) {
      if (slot.used) archive(slot);
    }
  }
}

template <typename Archive>
void LevelBounds::Point::Visit(Archive& archive) {
  archive(since_ns, bytes);
}

template <typename Archive>
void LevelBounds::Visit(Archive& archive) {
  archive(upper_, gone_bytes_, lower_);
}

template <typename Archive>
void MemoryLedger::Kind::Visit(Archive& archive) {
  archive(allocations, frees, small, failed, largest_failed_bytes, last_failed_ns, live_bytes,
          high_water_bytes, high_water_at_ns, high_water_range, largest, bounds);
}

template <typename Archive>
void MemoryLedger::Held::Visit(Archive& archive) {
  archive(bytes, range);
}

template <typename Archive>
void LevelHistory::Bucket::Visit(Archive& archive) {
  archive(least, greatest, last);
}

template <typename Archive>
void LevelHistory::Visit(Archive& archive) {
  archive(start_ns_, width_ns_, buckets_);
  archive.Require(width_ns_ > 0);
}

template <typename Archive>
void MemoryLedger::Device::Visit(Archive& archive) {
  archive(live, live_bytes, high_water_bytes, high_water_at_ns, at_high_water, bounds, level, peaks,
          lifetimes);
}

template <typename Archive>
void MemoryLedger::Refusal::Visit(Archive& archive) {
  archive(time_ns, memory, asked_bytes, device, range, live);
}

template <typename Archive>
void MemoryLedger::SmallStep::Visit(Archive& archive) {
  archive(time_ns, kind, device, change_bytes, allocations, frees, range, obtained.bytes,
          obtained.before_bytes, obtained.since_ns, released.bytes, released.before_bytes, released.since_ns,
          settles);
  archive.Require(kind < kKinds);
}

template <typename Archive>
void MemoryPools::Pool::Visit(Archive& archive) {
  archive(device, at_ns, used_bytes, reserved_bytes, peak_used_bytes, peak_used_at_ns, peak_reserved_bytes,
          peak_reserved_at_ns, release_threshold_bytes, trims, destroyed);
}

template <typename Archive>
void MemoryPools::Visit(Archive& archive) {
  archive(pools_);
}

template <typename Archive>
void MemoryLedger::Visit(Archive& archive) {
  archive(kinds_, devices_, refusals_, pending_, pending_small_, live_, at_high_water_, pools_);
  archive.Rebuilt(by_size_);
  if constexpr (Archive::kReads) {
    for (auto& by_size : by_size_) by_size.clear();
    for (const auto& [key, held] : live_) {
      archive.Require(key.first < kKinds);
      if (key.first < kKinds) by_size_[key.first].emplace(held.bytes, key.second);
    }
  }
}

template <typename Archive>
void RangePaths::Range::Visit(Archive& archive) {
  archive(parent, name, closed);
}

template <typename Archive>
void RangePaths::Visit(Archive& archive) {
  archive(ranges_);
  archive.Rebuilt(limit_);  // the owner's
}

template <typename Archive>
void AllocatorTotals::Visit(Archive& archive) {
  archive(allocated_bytes, reserved_bytes, peak_allocated_bytes, peak_reserved_bytes, refusals, last_refusal,
          allocated, peaks, tensors, tensors_told);
}

template <typename Archive>
void PhaseNode::Visit(Archive& archive) {
  archive(gpu_ns, host_ns, unclosed, gpu_records, first_start_ns, children);
}

template <typename Archive>
void RangeTracker::Instance::Visit(Archive& archive) {
  archive(parent, start_ns, end_ns, name, closed, unclosed, main_thread, gpu_records, gpu, settled_children);
}

template <typename Archive>
void RangeTracker::Visit(Archive& archive) {
  archive(root_, phases_, closed_, unnamed_gpu_ns_, live_, main_by_start_);
  std::vector<Waiting> waiting;
  if constexpr (!Archive::kReads) {
    for (auto copy = waiting_; !copy.empty(); copy.pop()) waiting.push_back(copy.top());
  }
  archive(waiting);
  archive.Rebuilt(waiting_, last_, last_id_);
  if constexpr (Archive::kReads) {
    waiting_ = decltype(waiting_)(std::greater<>(), std::move(waiting));
    last_ = nullptr;
    last_id_ = 0;
  }
}

template <typename Archive>
void CollectivePart::Visit(Archive& archive) {
  archive(op, calls, bytes, timed_bytes);
}

template <typename Archive>
void RanAs::Visit(Archive& archive) {
  archive(algorithm, protocol, channels, calls);
}

template <typename Archive>
void SteadyTransfers::Sums::Visit(Archive& archive) {
  archive(calls, transfer_ns, transfer_squares, waited_ns);
}

template <typename Archive>
void SteadyTransfers::Call::Visit(Archive& archive) {
  archive(end_ns, transfer_ns, waited_ns);
}

template <typename Archive>
void SteadyTransfers::Visit(Archive& archive) {
  archive(pending_, next_sort_, by_run_, sums_);
  archive.Require(pending_.size() <= kMaxPending && by_run_.size() <= SteadyRuns::kMaxRuns + 1);
}

template <typename Archive>
void CollectiveSeries::Visit(Archive& archive) {
  archive(comm, size_bytes, calls_per_plan, mixed_sizes, calls, bytes, element_bytes, mixed_elements,
          failed_calls, untimed_calls, unlaunched_calls, parts, ran_as, time_ns, compared_plans, wait_ns,
          transfer_ns, transfer_bytes, compared_ranks_sum, steady);
}

template <typename Archive>
void Transfers::Open::Visit(Archive& archive) {
  archive(number, seq, plan, issue_ns, count, element_bytes, datatype);
}

template <typename Archive>
void Transfers::Peer::Visit(Archive& archive) {
  archive(issued, open);
}

template <typename Archive>
void Transfers::Visit(Archive& archive) {
  archive(peers_);
}

template <typename Archive>
void CarriedPlan::Visit(Archive& archive) {
  archive(plan, copy);
}

template <typename Archive>
void GraphReplays::Launch::Visit(Archive& archive) {
  archive(number, correlation, launch_ns, over, ended);
}

template <typename Archive>
void GraphReplays::Graph::Visit(Archive& archive) {
  archive(launches, places, recent, place_of, place_with);
  for (const auto& [node, place] : place_of) archive.Require(place < places.size());
  for (const auto& [plan, place] : place_with) archive.Require(place < places.size());
}

template <typename Archive>
void GraphReplays::Place::Visit(Archive& archive) {
  archive(first, now, before, since);
}

template <typename Archive>
void GraphReplays::Visit(Archive& archive) {
  archive(graphs_, graph_of_, unknown_launches_);
}

template <typename Archive>
void CollectiveTracker::Call::Visit(Archive& archive) {
  archive(op, seq, bytes, element_bytes, failed, point_to_point, peer, algorithm, protocol, channels, pair);
}

template <typename Archive>
void CollectiveTracker::Plan::Visit(Archive& archive) {
  archive(comm, start_ns, end_ns, issue_ns, correlation, batch, launches, kernels, complete, lost, calls);
}

template <typename Archive>
void CollectiveTracker::Captured::Visit(Archive& archive) {
  archive(pattern, open, batch, settled);
}

template <typename Archive>
void CollectiveTracker::Complete::Visit(Archive& archive) {
  archive(plan, replayed, batch);
}

template <typename Archive>
void CollectiveTracker::Visit(Archive& archive) {
  archive(calls_, batch_, waiting_, captured_, order_, complete_, unlaunched_, transfers_, replays_, pairs_,
          series_);
  std::vector<std::pair<std::string, uint64_t>> keys;
  if constexpr (!Archive::kReads) {
    absl::flat_hash_map<const CollectiveSeries*, uint64_t> index;
    for (const auto& series : series_) index.emplace(series.get(), index.size());
    for (const auto& [key, series] : by_key_) keys.emplace_back(key, index.at(series));
  }
  archive(keys);
  archive.Rebuilt(by_key_, events_);
  if constexpr (Archive::kReads) {
    by_key_.clear();
    for (const auto& [key, index] : keys) {
      archive.Require(index < series_.size());
      if (archive.ok()) by_key_[key] = series_[index].get();
    }
  }
}

template <typename Archive>
void HostProgress::LastCall::Visit(Archive& archive) {
  archive(issue_ns, return_ns, op, comm, seq, plan, done_ns);
}

template <typename Archive>
void HostProgress::Visit(Archive& archive) {
  archive(last_call, last_launch_ns, last_device_end_ns, io_bytes, last_io_ns, last_left_out_ns, open_ranges,
          blocked_in, blocked_since_ns, last_wait_end_ns);
}

template <typename Archive>
void ProcessCondition::Sums::Visit(Archive& archive) {
  archive(observed_ns, cpu_ns, run_delay_ns, major_faults, quota_periods, throttled_periods, memory_stall_ns);
}

template <typename Archive>
void ProcessCondition::Recent::Visit(Archive& archive) {
  archive(time_ns, state, sums);
}

template <typename Archive>
void ProcessCondition::Halt::Visit(Archive& archive) {
  archive(reason, since_ns, until_ns, stop_signal, tracer);
}

template <typename Archive>
void ProcessCondition::Visit(Archive& archive) {
  archive(totals_, recent_, last_ns_, halts_, halted_, state_, wait_channel_, waits_for_, quota_millicpus_,
          swapped_bytes_, end_);
  archive.Require(!halted_ || !halts_.empty());
}

template <typename Archive>
void IssuedCalls::Signature::Visit(Archive& archive) {
  archive(op, datatype, count, root);
}

template <typename Archive>
void IssuedCalls::Issue::Visit(Archive& archive) {
  archive(comm_rank, signature, issue_ns, element_bytes, plan);
}

template <typename Archive>
void IssuedCalls::Call::Visit(Archive& archive) {
  archive(seq, signatures, issues);
  for (const Issue& issue : issues) archive.Require(issue.signature < signatures.size());
}

template <typename Archive>
void IssuedCalls::RankState::Visit(Archive& archive) {
  archive(process, next_seq);
}

template <typename Archive>
void IssuedCalls::Communicator::Visit(Archive& archive) {
  archive(finished, calls, ranks, heard);
}

template <typename Archive>
void IssuedCalls::Mismatched::Visit(Archive& archive) {
  archive(hash, call);
}

template <typename Archive>
void IssuedCalls::Visit(Archive& archive) {
  archive(communicators_, mismatched_);
}

template <typename Archive>
void HangVerdicts::Visit(Archive& archive) {
  archive(all_);
  archive.Require(all_.size() <= kMost);
}

template <typename Archive>
void KernelTotals::Visit(Archive& archive) {
  archive(name, token, time_ns);
}

template <typename Archive>
void CopyTotals::Visit(Archive& archive) {
  archive(count, bytes, duration_ns, busy);
}

template <typename Archive>
void SyncTotals::Visit(Archive& archive) {
  archive(count, duration_ns);
}

template <typename Archive>
void OverheadTotals::Visit(Archive& archive) {
  archive(count, duration_ns);
}

template <typename Archive>
void PageableTotals::Visit(Archive& archive) {
  archive(count, bytes, duration_ns);
}

template <typename Archive>
void LaunchGeometry::Visit(Archive& archive) {
  archive(grid, block);
}

template <typename Archive>
void DeviceTotals::Visit(Archive& archive) {
  archive(info, kernels, busy);
}

template <typename Archive>
void ProcessModel::Totals::Visit(Archive& archive) {
  archive(records, batches, batches_missing, records_missing, records_elsewhere, wire_bytes, kernels,
          graph_kernels, short_kernels, short_kernel_ns, reversed_times, launches, marks, ranges_unclosed,
          memsets, memset_bytes, memset_ns, first_ns, last_ns, last_clock_ns, clock_step_ns, copies, syncs,
          overheads, pageable_h2d, pageable_d2h, losses, self);
}

template <typename Archive>
void Operation::Visit(Archive& archive) {
  archive(correlation, graph_node, launch_ns, start_ns, end_ns, range, bytes, plan, comm, op, calls, site,
          thread, batch, kind, direction, pageable, launched);
}

template <typename Archive>
void OperationWindow::Launch::Visit(Archive& archive) {
  archive(correlation, launch_ns, thread, batch);
}

template <typename Archive>
void OperationWindow::Visit(Archive& archive) {
  std::vector<Operation> held;
  for (const std::unique_ptr<Block>& block : held_) {
    held.insert(held.end(), block->operations.begin(), block->operations.begin() + block->count);
  }
  archive(held, launches_, sorted_, told_, told_before_, released_, late_, latest_ns_, latest_of_thread_);
  archive.Rebuilt(held_, held_count_, seen_thread_, seen_ns_);
  if constexpr (Archive::kReads) {
    held_.clear();
    held_count_ = 0;
    for (const Operation& operation : held) Add(operation);
  }
}

template <typename Archive>
void StepOperation::Visit(Archive& archive) {
  archive(start_ns, end_ns, launch_ns, range, token, coarse, work, roles, launched, same_launch);
}

template <typename Archive>
void StepRecord::Visit(Archive& archive) {
  archive(index, start_ns, end_ns, first_launch_ns, compute_ns, comm_ns, exposed_comm_ns, copy_ns, idle_ns,
          host_bound_ns, input_ns, sync_ns, launch_gap_ns, unknown_ns, blocked_ns, phase_ns, operations, lost,
          error_ns, clock_step_ns, warmup, incomplete);
}

template <typename Archive>
void BlockedInterval::Visit(Archive& archive) {
  archive(start_ns, end_ns);
}

template <typename Archive>
void PhaseRanges::Range::Visit(Archive& archive) {
  archive(parent, end_ns, phase);
}

template <typename Archive>
void PhaseRanges::Visit(Archive& archive) {
  archive(ranges_, named_, heard_);
  for (auto& [id, range] : ranges_) archive.Require(range.phase == kNone || range.phase < kStepPhases);
  if (!archive.ok()) ranges_.clear();
}

template <typename Archive>
void StepStatistics::Visit(Archive& archive) {
  archive(total_ns, compute_ns, comm_ns, exposed_comm_ns, overlapped_comm_ns, copy_ns, idle_ns, host_bound_ns,
          input_ns, sync_ns, launch_gap_ns, unknown_ns, phase_ns, incomplete, estimated, nvtx_phases);
}

template <typename Archive>
void StepTracker::StepRange::Visit(Archive& archive) {
  archive(start_ns, end_ns, kind, index, earlier_end_ns, earlier_launch_ns);
}

template <typename Archive>
void StepWork::Sum::Visit(Archive& archive) {
  archive(calls, time_ns, squares);
}

template <typename Archive>
void StepWork::Sums::Visit(Archive& archive) {
  archive(steps, kernels, pageable_to_device, pageable_from_device);
}

template <typename Sums>
template <typename Archive>
void EarlySteps<Sums>::Run::Visit(Archive& archive) {
  archive(begin, first_ns, sums);
}

template <typename Sums>
template <typename Archive>
void EarlySteps<Sums>::Visit(Archive& archive) {
  archive(runs_);
  archive.Require(runs_.size() <= kMaxRuns);
}

template <typename Archive>
void StepWork::Visit(Archive& archive) {
  archive(early_, sums_, step_blocks_, blocks_, places_, kernels_);
  archive.Rebuilt(part_of_, parts_);  // empty but while a step is added
  if constexpr (Archive::kReads) {
    archive.Require(kernels_ <= kMaxKernels && blocks_.size() <= kernels_);
    for (const uint32_t place : places_) archive.Require(place <= kernels_);
    if (!archive.ok()) *this = StepWork();
  }
}

template <typename Archive>
void CommunicationTiming::Name::Visit(Archive& archive) {
  archive(op, comm, calls, bytes);
}

template <typename Archive>
void CommunicationTiming::Call::Visit(Archive& archive) {
  archive(token, steps, time_ns, hidden_ns, backward_steps, after_backward_ns, forward_steps, forward_ns,
          forward_hidden_ns);
}

template <typename Archive>
void CommunicationTiming::Visit(Archive& archive) {
  archive(early_, sums_, names_);
}

template <typename Archive>
void CommunicationTiming::Sums::Visit(Archive& archive) {
  archive(steps, forward_compute_ns, calls);
}

template <typename Archive>
void HostPhases::Visit(Archive& archive) {
  archive(begin_ns, end_ns, changes, last_launch_ns);
  for (const auto& [time_ns, phase] : changes) archive.Require(static_cast<size_t>(phase) < kStepPhases);
  if (!archive.ok()) changes.clear();
}

template <typename Archive>
void LevelPeaks::Phase::Visit(Archive& archive) {
  archive(steps, sum_bytes, peak_bytes);
}

template <typename Archive>
void LevelPeaks::Visit(Archive& archive) {
  archive(changes_, step_peak_bytes_, phases_);
}

template <typename Archive>
void MemoryLifetimes::Peak::Visit(Archive& archive) {
  archive(step, time_ns, bytes, parts);
}

template <typename Archive>
void MemoryLifetimes::Kept::Visit(Archive& archive) {
  archive(allocations, bytes, steps, last_step);
}

template <typename Archive>
void MemoryLifetimes::Event::Visit(Archive& archive) {
  archive(time_ns, address, bytes, freed_ns, release, by_nccl);
}

template <typename Archive>
void MemoryLifetimes::Live::Visit(Archive& archive) {
  archive(bytes, lifetime, size);
  archive.Require(static_cast<size_t>(lifetime) < kLifetimes &&
                  static_cast<size_t>(size.second) < kStepPhases);
  if (!archive.ok()) lifetime = Lifetime::kOther;
}

template <typename Archive>
void MemoryLifetimes::Visit(Archive& archive) {
  archive(arrived_, waiting_, taken_, open_, steps_, live_, live_bytes_, by_lifetime_, peak_, kept_, classed_,
          from_backward_bytes_, allocations_, unknown_frees_, missed_frees_, not_followed_, step_peaks_);
  for (const auto& [address, position] : open_)
    archive.Require(position >= taken_ && position - taken_ < waiting_.size());
  if (!archive.ok()) open_.clear();
}

template <typename Archive>
void StepTracker::ClockStep::Visit(Archive& archive) {
  archive(by_ns, from_ns, to_ns);
}

template <typename Archive>
void UsualStep::Visit(Archive& archive) {
  archive(operations_, length_ns_, parts_, parts_length_ns_);
}

template <typename Archive>
void StepTracker::Pending::Visit(Archive& archive) {
  archive(begin, end, lost, left, end_error_ns, start_ns, end_ns, previous_launch_ns, index, host_end_ns,
          earlier_end_ns, earlier_launch_ns, after_others);
}

template <typename Archive>
void StepDefinition::Visit(Archive& archive) {
  archive(source, roles, token, coarse, collectives, before, gap, tail, head, operations, fine_sum,
          coarse_sum);
}

template <typename Archive>
void StepTracker::EarlyStep::Visit(Archive& archive) {
  archive(nvtx_phases, input_ns, host_bound_ns, input_phase_ns, other_phase_ns);
}

template <typename Archive>
void SteadyRuns::Visit(Archive& archive) {
  archive(starts_ns_, run_length_ns_, until_ns_, known_, from_ns_);
  archive.Require(starts_ns_.size() <= kMaxRuns && std::is_sorted(starts_ns_.begin(), starts_ns_.end()));
}

template <typename Archive>
void StepTracker::Visit(Archive& archive) {
  bool defined = definition_.has_value();
  StepDefinition definition = definition_.value_or(StepDefinition{});
  archive(defined, definition, next_search_, scanned_, segment_, cluster_end_, compared_, usual_, operations_,
          lost_operations_, lossy_, begun_, usual_step_, begin_error_ns_);
  archive(base_, open_, forgotten_until_ns_, last_launch_ns_, pending_, loss_, source_, step_ranges_,
          step_kind_, range_names_, blocked_, clock_steps_, host_phases_, phase_ranges_, steps_, next_index_,
          counted_, some_, warmup_known_, warmup_count_, early_, early_counted_, statistics_, blocks_,
          communication_, work_, steady_runs_, tokens_);
  archive.Rebuilt(definition_, marker_);
  if constexpr (Archive::kReads) {
    for (size_t i = 0; i < pending_.size(); ++i) {
      const Pending& pending = pending_[i];
      archive.Require((i == 0 ? base_ : pending_[i - 1].end) <= pending.begin &&
                      pending.begin <= pending.end && pending.end <= Next() &&
                      pending.lost <= pending.end - pending.begin && pending.left <= pending.lost &&
                      pending.start_ns <= pending.end_ns);
    }
    archive.Require(warmup_known_ || (steps_.size() == early_.size() && early_.size() < kWarmupLook &&
                                      warmup_count_ <= early_counted_ && early_counted_ <= early_.size()));
    archive.Require(next_search_ >= kFirstSearch && next_search_ <= kMaxSearch);
    archive.Require(!defined ||
                    (base_ <= segment_ && segment_ <= Next() && base_ <= scanned_ && scanned_ <= Next() &&
                     (cluster_end_ == 0 || (segment_ <= cluster_end_ && cluster_end_ <= Next()))));
    definition_.reset();
    if (defined && archive.ok()) definition_ = definition;
    if (!archive.ok()) {
      StepTracker fresh;
      fresh.marker_ = marker_;
      *this = fresh;
    }
  }
}

template <typename Archive>
void OperationJoiner::Totals::Visit(Archive& archive) {
  archive(joined, unattributed, late, without_record, launch_delay_ns);
}

template <typename Archive>
void OperationJoiner::Waiting::Visit(Archive& archive) {
  archive(batch, lowest, latest_start_ns, operations);
}

template <typename Archive>
void OperationJoiner::Unexplained::Visit(Archive& archive) {
  archive(correlation, graph_node, start_ns, end_ns, op, batch);
}

template <typename Archive>
void GraphNodePlans::Visit(Archive& archive) {
  archive(plans_, updated_);
  archive.Rebuilt(max_nodes_, max_updates_);  // the owner's
}

template <typename Archive>
void OperationJoiner::Visit(Archive& archive) {
  archive(totals_, batch_, ring_, waiting_, window_, node_plans_, unexplained_, told_until_ns_, told_);
  archive.Rebuilt(waiting_count_);
  archive.BeginsWithReferences(2);
  waiting_count_ = 0;
  for (const Waiting& waiting : waiting_) waiting_count_ += waiting.operations.size();
}

template <typename Archive>
void ProcessModel::HighWaterName::Visit(Archive& archive) {
  archive(range, name);
}

template <typename Archive>
void ProcessModel::VisitSites(Archive& archive) {
  // (name, device + 1, tokens, stream) of a site; zeros where an id was never defined.
  std::vector<std::tuple<uint32_t, uint64_t, uint32_t, uint32_t, uint32_t>> sites;
  if constexpr (!Archive::kReads) {
    absl::flat_hash_map<const DeviceTotals*, uint64_t> ordinals;
    for (const auto& [ordinal, device] : devices_) ordinals[&device] = ordinal;
    for (const Site& site : sites_) {
      if (site.kernel == nullptr) {
        sites.emplace_back(0, 0, 0, 0, 0);
      } else {
        sites.emplace_back(site.kernel->name, ordinals.at(site.device) + 1, site.token.fine,
                           site.token.coarse, site.stream);
      }
    }
  }
  archive(sites);
  std::vector<uint64_t> calls;
  std::vector<LaunchGeometry> geometries;
  if constexpr (!Archive::kReads) {
    for (const Site& site : sites_) {
      calls.push_back(site.calls);
      geometries.push_back(site.geometry);
    }
  }
  archive(calls, geometries);
  archive.Require(calls.size() == sites.size() && geometries.size() == sites.size());
  if constexpr (Archive::kReads) {
    if (!archive.ok()) return;
    kernel_by_name_.clear();
    for (const auto& kernel : kernels_) kernel_by_name_[kernel->name] = kernel.get();
    sites_.assign(sites.size(), {});
    for (size_t i = 0; i < sites.size(); ++i) {
      const auto& [name, device, fine, coarse, stream] = sites[i];
      if (device == 0) continue;
      const auto kernel = kernel_by_name_.find(name);
      const auto found = devices_.find(static_cast<uint32_t>(device - 1));
      archive.Require(kernel != kernel_by_name_.end() && found != devices_.end());
      if (!archive.ok()) return;
      sites_[i].kernel = kernel->second;
      sites_[i].device = &found->second;
      sites_[i].collective_op = OperationIdOfKernel(String(name));
      sites_[i].token = {.fine = fine, .coarse = coarse};
      sites_[i].roles = RolesOf(String(name));
      sites_[i].stream = stream;
      sites_[i].calls = calls[i];
      sites_[i].geometry = geometries[i];
    }
  }
}

template <typename Archive>
void ClockSteps::Step::Visit(Archive& archive) {
  archive(by_ns, from_ns, to_ns);
}

template <typename Archive>
void ClockSteps::Visit(Archive& archive) {
  archive(steps_);
}

template <typename Archive>
void ContinuousClock::Set::Visit(Archive& archive) {
  archive(at_ns, by_ns);
}

template <typename Archive>
void ContinuousClock::Stream::Visit(Archive& archive) {
  archive(last_ns, after);
}

template <typename Archive>
void ContinuousClock::Visit(Archive& archive) {
  archive(sets_, shift_ns_, by_ns_, last_launch_, last_range_, device_until_ns_, first_after_, streams_,
          launch_unknown_, sealed_ns_);
  archive.Rebuilt(set_in_batch_, host_);  // of the batch under way: none is while a state is saved
  archive.Require(!sets_.empty() || (shift_ns_ == 0 && by_ns_ == 0));
}

template <typename Archive>
void ProcessModel::Visit(Archive& archive) {
  archive(versions_, totals_, progress_, condition_, end_state_, last_sequence_, records_sent_,
          clock_offset_ns_, clock_steps_, *line_, clock_shifts_, clock_known_, strings_, point_to_point_,
          main_thread_, thread_roles_, kernels_, devices_, communicators_, steps_, last_correlation_,
          marked_calls_, ranges_, collectives_, joiner_, ledger_, range_paths_, allocator_,
          high_water_names_);
  VisitSites(archive);
  archive.Rebuilt(events_, hello_, line_, sites_, kernel_by_name_, marker_);
}

template <typename Archive>
void ClockLink::Window::Visit(Archive& archive) {
  archive(time_ns, ahead_ns);
}

template <typename Archive>
void ClockLink::Visit(Archive& archive) {
  archive(windows_, length_ns_, begin_ns_, open_, samples_);
  archive.Require(windows_.size() < kMaxWindows && open_.size() <= kSamples);
}

template <typename Archive>
void RankComparison::Transfers::Visit(Archive& archive) {
  archive(hash, ranks, bytes_of_op, calls_per_plan, time_ns, blocks, usual_ns, usual_of);
}

template <typename Archive>
void RankComparison::Blame::Pending::Visit(Archive& archive) {
  archive(end_ns, mean_ns, pair);
}

template <typename Archive>
void RankComparison::Blame::Visit(Archive& archive) {
  archive(caused_ns, caused_mean_ns, caused_squares, compared, skipped, estimated, estimated_variance,
          waited_ns, last_arrivals, step_ns, pairs, pair_caused_ns, pair_waited_ns, pair_step_ns,
          steps_blamed, first_blamed, last_blamed, pending, next_step, compared_ns, open_steps,
          open_pair_steps);
}

template <typename Archive>
void StepAlignment::Rank::Visit(Archive& archive) {
  archive(changes, seen_from, seen, doubted);
}

template <typename Archive>
void StepAlignment::Visit(Archive& archive) {
  archive(calls_, waiting_, ranks_);
}

template <typename Archive>
void StepSpread::Step::Visit(Archive& archive) {
  archive(ranks, exposed_ns, least_exposed_ns, least_comm_ns);
}

template <typename Archive>
void StepSpread::Sums::Visit(Archive& archive) {
  archive(steps, exposed_ns, least_exposed_ns, least_comm_ns);
}

template <typename Archive>
void StepSpread::Visit(Archive& archive) {
  archive(open_, closed_before_, most_ranks_, sums_);
}

template <typename Archive>
void StepHistory::Span::Visit(Archive& archive) {
  archive(count, first, last);
}

template <typename Archive>
void StepHistory::Visit(Archive& archive) {
  archive(spans_, length_);
  archive.Require(spans_.size() <= kMaxSpans && length_ > 0 && (length_ & (length_ - 1)) == 0);
}

template <typename Archive>
void LongSteps::Step::Visit(Archive& archive) {
  archive(step, total_ns, late, process, late_by_ns);
}

template <typename Archive>
void LongSteps::Visit(Archive& archive) {
  archive(longest_, lengths_ns_);
  archive.Require(longest_.size() <= kKept);
}

template <typename Archive>
void LateSteps::Level::Visit(Archive& archive) {
  archive(late, others_late, late_total_ns, late_by_ns, compute_ns, host_ns, input_ns, copy_ns, longer_by_ns,
          longer_known, other_steps_ns, history);
}

template <typename Archive>
void LateSteps::Rank::Visit(Archive& archive) {
  archive(steps, last_step, levels);
  for (const Level& level : levels) {
    archive.Require(level.late <= steps && level.others_late <= steps - level.late &&
                    level.longer_known <= level.late);
  }
}

template <typename Archive>
void LateSteps::Told::Visit(Archive& archive) {
  archive(process, total_ns, exposed_ns, compute_ns, host_ns, input_ns, copy_ns, blocked_ns, ahead_ns);
}

template <typename Archive>
void LateSteps::Summary::Visit(Archive& archive) {
  archive(ranks, long_steps);
}

template <typename Archive>
void LateSteps::Visit(Archive& archive) {
  archive(open_, closed_before_, most_told_, closed_);
}

template <typename Archive>
void RankComparison::Visit(Archive& archive) {
  archive(blame_, spread_, late_steps_, alignment_, whole_, transfers_, transfers_by_key_, clocks_,
          pair_clocks_);
  archive.Rebuilt(transfers_by_series_);
  if constexpr (Archive::kReads) {
    transfers_by_series_.clear();
    for (const auto& [key, index] : transfers_by_key_) archive.Require(index < transfers_.size());
  }
}

}  // namespace gpuprobe::model
