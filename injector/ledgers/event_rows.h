// Rows of events of the application's threads: the same facts, with what only the drain knows, such as a
// thread's id.
//
// Pure functions. Thread: any. Allocation: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpuprobe/v1/wire_rows.h"
#include "injector/core/events.h"
#include "injector/core/small_run.h"

namespace gpuprobe::injector {

// A device that is not known counts as the first.
inline uint32_t DeviceOrFirst(int32_t device) noexcept {
  return device < 0 ? 0 : static_cast<uint32_t>(device);
}

inline wire::LaunchRow RowOf(const LaunchEvent& event, uint32_t thread) noexcept {
  return {.thread = thread,
          .time_ns = event.time_ns,
          .correlation = event.correlation,
          .range = event.range_id,
          .fallback_range = event.range_id == 0 ? event.fallback_range_id : 0,
          .graph = event.graph,
          .may_lack_record = event.may_lack_record != 0,
          .owner = event.owner};
}

inline wire::AllocationRow RowOf(const AllocationEvent& event, uint32_t thread) noexcept {
  const bool began = event.began_ns != 0 && event.began_ns < event.time_ns;
  return {.time_ns = event.time_ns,
          .op = static_cast<wire::AllocationOp>(event.op),
          .memory = static_cast<wire::MemoryKind>(event.memory),
          .address = event.address,
          .bytes = event.bytes,
          .device = DeviceOrFirst(event.device),
          .failed = event.failed != 0,
          .thread = thread,
          .range = event.range_id,
          .duration_ns = began ? event.time_ns - event.began_ns : 0,
          .by_nccl = event.by_nccl != 0};
}

inline wire::SmallAllocationsRow RowOf(const SmallRun& run) noexcept {
  const auto since = [&run](const SmallRun::Overlap& overlap) noexcept {
    return overlap.before_bytes == 0 ? run.end_ns() : overlap.since_ns;
  };
  return {.highest_ns = run.highest_ns(),
          .end_ns = run.end_ns(),
          .memory = static_cast<wire::MemoryKind>(run.memory()),
          .device = DeviceOrFirst(run.device()),
          .allocations = run.allocations(),
          .frees = run.frees(),
          .rise_bytes = run.rise_bytes(),
          .change_bytes = run.change_bytes(),
          .range = run.range_id(),
          .obtained_bytes = run.obtained().bytes,
          .obtained_before_bytes = run.obtained().before_bytes,
          .obtained_since_ns = since(run.obtained()),
          .released_bytes = run.released().bytes,
          .released_before_bytes = run.released().before_bytes,
          .released_since_ns = since(run.released())};
}

inline wire::AllocatorLevelRow RowOf(const AllocatorLevelEvent& event) noexcept {
  return {.time_ns = event.time_ns,
          .device = static_cast<uint32_t>(event.device),
          .allocated_bytes = event.allocated_bytes,
          .reserved_bytes = event.reserved_bytes,
          .peak_allocated_bytes = event.peak_allocated_bytes,
          .peak_reserved_bytes = event.peak_reserved_bytes};
}

inline wire::AllocatorRefusalRow RowOf(const AllocatorRefusalEvent& event) noexcept {
  return {.time_ns = event.time_ns,
          .device = static_cast<uint32_t>(event.device),
          .asked_bytes = event.asked_bytes,
          .allocated_bytes = event.allocated_bytes,
          .reserved_bytes = event.reserved_bytes,
          .range = event.range_id};
}

inline wire::TensorRow RowOf(const TensorEvent& event) noexcept {
  return {.time_ns = event.time_ns,
          .address = event.address,
          .change_bytes = event.bytes,
          .device = static_cast<uint32_t>(event.device),
          .range = event.range_id};
}

// `from_correlation`: of a graph node that was updated, the first launch in which it carries the plan.
inline wire::PlanRow RowOf(const PlanLaunchEvent& event, uint64_t from_correlation = 0) noexcept {
  return {.plan = event.plan,
          .correlation = event.correlation,
          .graph_node = event.graph_node,
          .graph = event.graph,
          .from_correlation = from_correlation,
          .copy = event.copy};
}

// Ids of strings.
struct CollectiveNames {
  uint32_t op, datatype, algorithm, protocol, reduction;
};

inline wire::CollectiveRow RowOf(const CollectiveEvent& event, const CollectiveNames& names,
                                 uint32_t thread) noexcept {
  return {.issue_ns = event.issue_ns,
          .return_ns = std::max(event.return_ns, event.issue_ns),
          .op = names.op,
          .comm = event.comm,
          .seq = event.seq,
          .count = event.count,
          .datatype = names.datatype,
          .element_bytes = event.element_bytes,
          .root = event.root,
          .peer = event.peer,
          .plan = event.plan,
          .thread = thread,
          .range = event.range_id,
          .source = static_cast<wire::CallSource>(event.source),
          .result = event.result,
          .algorithm = names.algorithm,
          .protocol = names.protocol,
          .channels = event.channels,
          .reduction = names.reduction};
}

}  // namespace gpuprobe::injector
