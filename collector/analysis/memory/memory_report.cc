#include "collector/analysis/memory/memory_report.h"

#include <algorithm>

#include "collector/analysis/memory/lifetime_report.h"
#include "collector/analysis/memory/memory_trend.h"
#include "collector/analysis/steps/step_report.h"
#include "collector/model/job/member.h"
#include "collector/model/process/process_model.h"
#include "collector/report/memory.h"
#include "collector/report/ranks.h"
#include "collector/report/words.h"

namespace gpuprobe::analysis {
namespace {

report::WordMap<v1::MemoryKind, uint64_t> ByKind(const model::MemoryLedger::BytesByKind& bytes) {
  report::WordMap<v1::MemoryKind, uint64_t> some;
  for (size_t kind = 0; kind < bytes.size(); ++kind) {
    if (bytes[kind] != 0) some[static_cast<v1::MemoryKind>(kind)] = bytes[kind];
  }
  return some;
}

std::optional<uint64_t> Capacity(const model::ProcessModel& process, uint32_t device) {
  const auto found = process.devices().find(device);
  if (found == process.devices().end() || found->second.info.memory_bytes() == 0) return std::nullopt;
  return found->second.info.memory_bytes();
}

// Managed memory may be on the host.
uint64_t Resident(const model::MemoryLedger::BytesByKind& live) {
  uint64_t bytes = 0;
  for (size_t kind = 0; kind < live.size(); ++kind) {
    if (kind != v1::MEMORY_KIND_PINNED && kind != v1::MEMORY_KIND_MANAGED) bytes += live[kind];
  }
  return bytes;
}

MemoryReport KindReport(const model::ProcessModel& process, size_t index) {
  const model::MemoryLedger::Kind& kind = process.memory()[index];
  MemoryReport m{.high_water_bytes = kind.high_water_bytes,
                 .high_water_error_bytes = kind.bounds.ErrorOf(kind.high_water_bytes),
                 .high_water_at_ns = process.Realtime(kind.high_water_at_ns),
                 .live_bytes = kind.live_bytes,
                 .allocations = kind.allocations,
                 .frees = kind.frees,
                 .small = kind.small,
                 .failed = kind.failed,
                 .largest_failed_bytes = kind.largest_failed_bytes,
                 .high_water_range = process.HighWaterRange(index),
                 .high_water_path = process.RangePath(kind.high_water_range),
                 .largest = {}};
  for (const model::MemoryLedger::Held& held : kind.largest) {
    m.largest.push_back({.bytes = held.bytes, .path = process.RangePath(held.range)});
  }
  return m;
}

RefusalReport RefusalOf(const model::ProcessModel& process, const model::MemoryLedger::Refusal& refusal) {
  RefusalReport r{.time_ns = refusal.time_ns,
                  .memory = static_cast<v1::MemoryKind>(refusal.memory),
                  .asked_bytes = refusal.asked_bytes,
                  .device = refusal.device,
                  .path = process.RangePath(refusal.range),
                  .live = ByKind(refusal.live),
                  .device_live_bytes = Resident(refusal.live),
                  .capacity_bytes = {},
                  .free_at_most_bytes = {}};
  if (refusal.memory == v1::MEMORY_KIND_PINNED) return r;  // what the host has is not known
  r.capacity_bytes = Capacity(process, refusal.device);
  if (r.capacity_bytes.has_value() && *r.capacity_bytes >= r.device_live_bytes) {
    r.free_at_most_bytes = *r.capacity_bytes - r.device_live_bytes;
  }
  return r;
}

// When the host began the last steps, without those of the warm-up.
// Steps that were left out are taken to lie evenly between those that were recorded.
std::vector<uint64_t> StepStarts(const model::StepTracker& steps) {
  constexpr uint64_t kMost = 65536;
  std::vector<uint64_t> starts;
  uint64_t next_index = 0;
  for (const model::StepRecord& step : steps.steps()) {
    if (step.warmup) continue;
    const uint64_t apart = step.index - next_index + 1;
    if (!starts.empty() && apart > 1 && apart < kMost && step.first_launch_ns > starts.back()) {
      const uint64_t from_ns = starts.back();
      for (uint64_t i = 1; i < apart; ++i)
        starts.push_back(from_ns + (step.first_launch_ns - from_ns) * i / apart);
    }
    starts.push_back(step.first_launch_ns);
    next_index = step.index + 1;
  }
  return std::is_sorted(starts.begin(), starts.end()) ? starts : std::vector<uint64_t>();
}

// Levels are sampled about twice a second; tensors are recorded one by one.
const model::LevelPeaks& PeaksOf(const model::AllocatorTotals& allocator) {
  const bool followed = allocator.tensors_told > 0 && allocator.tensors.not_followed() == 0;
  return followed ? allocator.tensors.step_peaks() : allocator.peaks;
}

std::optional<MemoryBySteps> BySteps(const model::LevelPeaks& peaks) {
  if (peaks.step_peak_bytes().count() == 0) return std::nullopt;
  MemoryBySteps out{.step_peak_bytes = peaks.step_peak_bytes().Summarize(), .phases = {}};
  for (size_t i = 0; i < model::kStepPhases; ++i) {
    const model::LevelPeaks::Phase& phase = peaks.phases()[i];
    if (phase.steps == 0) continue;
    out.phases.push_back(
        {.name = static_cast<model::StepPhase>(i),
         .steps = phase.steps,
         .mean_peak_bytes = static_cast<double>(phase.sum_bytes) / static_cast<double>(phase.steps),
         .peak_bytes = phase.peak_bytes});
  }
  return out;
}

}  // namespace

void FillMemory(const model::Member& member, RankReport& rank) {
  const model::ProcessModel& process = *member.process;
  // Memory of a device is with that one, and all other memory with the first.
  const auto elsewhere = [&](uint32_t device) {
    return member.IsDevice() && member.process->device_steps().ReportedPlaceOf(device) != member.place;
  };
  for (const v1::MemoryKind kind :
       {v1::MEMORY_KIND_DEVICE, v1::MEMORY_KIND_PINNED, v1::MEMORY_KIND_MANAGED, v1::MEMORY_KIND_POOL})
    rank.memory[kind];
  for (size_t i = 0; i < process.memory().size() && member.place == 0; ++i) {
    const model::MemoryLedger::Kind& kind = process.memory()[i];
    if (kind.allocations + kind.frees + kind.failed != 0)
      rank.memory[static_cast<v1::MemoryKind>(i)] = KindReport(process, i);
  }
  const std::vector<uint64_t> steps = StepStarts(member.steps());
  if (!member.steps().steps().empty())
    rank.last_step_launch_ns = member.steps().steps().back().first_launch_ns;
  for (const auto& [ordinal, device] : process.ledger().devices()) {
    if (elsewhere(ordinal)) continue;
    rank.device_memory.push_back({.device = ordinal,
                                  .capacity_bytes = Capacity(process, ordinal),
                                  .live_bytes = device.live_bytes,
                                  .high_water_bytes = device.high_water_bytes,
                                  .high_water_error_bytes = device.bounds.ErrorOf(device.high_water_bytes),
                                  .high_water_at_ns = process.Realtime(device.high_water_at_ns),
                                  .at_high_water = ByKind(device.at_high_water),
                                  .trend = TrendOf(device.level, steps, Capacity(process, ordinal)),
                                  .by_step = BySteps(device.peaks),
                                  .lifetimes = {}});
  }
  for (const auto& [ordinal, allocator] : process.allocator()) {
    if (elsewhere(ordinal)) continue;
    PytorchMemoryReport p{.device = ordinal,
                          .allocated_bytes = allocator.allocated_bytes,
                          .reserved_bytes = allocator.reserved_bytes,
                          .peak_allocated_bytes = allocator.peak_allocated_bytes,
                          .peak_reserved_bytes = allocator.peak_reserved_bytes,
                          .fragmentation_bytes = {},
                          .refusals = allocator.refusals,
                          .last_refused_bytes = allocator.last_refusal.asked_bytes,
                          .last_refused_path = process.RangePath(allocator.last_refusal.range),
                          .last_refused_allocated_bytes = allocator.last_refusal.allocated_bytes,
                          .last_refused_reserved_bytes = allocator.last_refusal.reserved_bytes,
                          .trend = TrendOf(allocator.allocated, steps, Capacity(process, ordinal)),
                          .by_step = BySteps(PeaksOf(allocator)),
                          .lifetimes = {}};
    if (allocator.tensors_told > 0) p.lifetimes = LifetimesOf(allocator.tensors);
    if (p.peak_reserved_bytes >= p.peak_allocated_bytes)
      p.fragmentation_bytes = p.peak_reserved_bytes - p.peak_allocated_bytes;
    rank.pytorch_memory.push_back(p);
  }
  for (DeviceMemoryReport& d : rank.device_memory) {
    const auto pytorch = std::find_if(rank.pytorch_memory.begin(), rank.pytorch_memory.end(),
                                      [&](const PytorchMemoryReport& p) { return p.device == d.device; });
    d.lifetimes = DriverLifetimesOf(process.ledger().devices().at(d.device).lifetimes, d.trend,
                                    pytorch == rank.pytorch_memory.end() ? std::nullopt : pytorch->trend);
  }
  for (const auto& [number, pool] : process.ledger().pools().pools()) {
    if (elsewhere(pool.device)) continue;
    rank.pools.push_back({.pool = number,
                          .device = pool.device,
                          .used_bytes = pool.used_bytes,
                          .reserved_bytes = pool.reserved_bytes,
                          .at_ns = pool.at_ns,
                          .used_high_water_bytes = pool.peak_used_bytes,
                          .used_high_water_at_ns = process.Realtime(pool.peak_used_at_ns),
                          .reserved_high_water_bytes = pool.peak_reserved_bytes,
                          .reserved_high_water_at_ns = process.Realtime(pool.peak_reserved_at_ns),
                          .release_threshold_bytes = pool.release_threshold_bytes,
                          .trims = pool.trims,
                          .destroyed = pool.destroyed});
  }
  for (const model::MemoryLedger::Refusal& refusal : process.ledger().refusals()) {
    if (elsewhere(refusal.device)) continue;
    rank.out_of_memory.push_back(RefusalOf(process, refusal));
  }
}

}  // namespace gpuprobe::analysis
