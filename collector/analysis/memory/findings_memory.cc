#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/memory/lifetime_report.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/statistics/whole_number.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

std::string WhoOf(const RankReport& r) {
  return r.rank.has_value() ? absl::StrCat("Rank ", *r.rank) : absl::StrCat("Process ", r.pid);
}

FindingSubject About(const RankReport& r) {
  return {.ranks = r.rank.has_value() ? std::vector<int>{*r.rank} : std::vector<int>{}};
}

// Whether the process ended over its last refusal: it was over soon, and no step was completed since. One
// that survived an earlier refusal by a step, and ended well, has survived the last one, too.
bool EndedOverIt(const RankReport& r) {
  const bool well = r.end.has_value() && r.end->exit_code == 0;
  if (well && r.last_step_launch_ns > r.out_of_memory.front().time_ns) return false;
  const uint64_t refused_ns = r.out_of_memory.back().time_ns;
  if (r.start_ns + r.duration_ns > refused_ns + thresholds::kEndedByRefusalNs) return false;
  return r.last_step_launch_ns <= refused_ns;
}

// Whether WhoAlike names more than one.
bool Plural(const Report& report, size_t count) { return count > 1 && count < report.ranks.size(); }

// Page-locked memory is the host's: a device's capacity says nothing of it.
Finding RefusedByHost(const RankReport& r, const RefusalReport& last) {
  const auto live = last.live.find(last.memory);
  std::string statement =
      absl::StrFormat("%s ran out of pinned host memory: requested %s with %s in use", WhoOf(r),
                      Bytes(last.asked_bytes), Bytes(live != last.live.end() ? live->second : 0));
  if (!last.path.empty()) absl::StrAppend(&statement, ", in range ", last.path);
  return {
      .statement = statement + ".",
      .evidence = absl::StrFormat("%d requests for pinned memory failed.", r.memory.at(last.memory).failed),
      .advice =
          "Use fewer or smaller pinned buffers (data-loader workers that pin, offloaded states); check the "
          "limits on locked memory (ulimit -l) and on the container's memory."};
}

// What processes that compute elsewhere hold on its device.
std::string StrayText(const Report& report, const RankReport& r, uint32_t device) {
  for (const StrayMemory& stray : report.conditions.stray_memory) {
    if (stray.host != r.host || stray.owner != r.label || stray.ordinal != static_cast<int>(device)) continue;
    uint64_t bytes = 0;
    for (const StrayMemory::User& user : stray.users) bytes += user.peak_bytes;
    return absl::StrFormat(" %d other process%s %s held up to %s on it.", stray.users.size(),
                           stray.users.size() == 1 ? "" : "es",
                           stray.users.size() == 1 ? "that computes elsewhere" : "that compute elsewhere",
                           Bytes(bytes));
  }
  return "";
}

// The last refusal is the one that counts: an allocator asks again after it has given back what it could.
Finding Refused(const Report& report, const RankReport& r) {
  const RefusalReport& last = r.out_of_memory.back();
  if (last.memory == v1::MEMORY_KIND_PINNED && r.memory.count(last.memory) != 0)
    return RefusedByHost(r, last);
  uint64_t refused = 0;
  for (const auto& [kind, m] : r.memory) refused += m.failed;
  std::string statement =
      absl::StrFormat("%s ran out of memory: requested %s (%s) with %s", WhoOf(r), Bytes(last.asked_bytes),
                      report::Word(last.memory), Bytes(last.device_live_bytes));
  if (last.capacity_bytes.has_value()) absl::StrAppend(&statement, " of ", Bytes(*last.capacity_bytes));
  statement += " in use";
  if (!last.path.empty()) absl::StrAppend(&statement, ", in range ", last.path);
  std::vector<std::string> live;
  for (const auto& [kind, bytes] : last.live)
    live.push_back(absl::StrCat(report::Word(kind), " ", Bytes(bytes)));
  std::string evidence = absl::StrCat(
      refused, refused == 1 ? " request" : " requests",
      " failed. In use at the time: ", live.empty() ? "nothing" : absl::StrJoin(live, ", "), ".");
  if (last.free_at_most_bytes.has_value()) {
    absl::StrAppend(&evidence, " At most ", Bytes(*last.free_at_most_bytes),
                    " was free, less what the context, loaded modules and other processes take.");
  }
  absl::StrAppend(&evidence, StrayText(report, r, last.device));
  bool fragmented = false;
  for (const PytorchMemoryReport& p : r.pytorch_memory) {
    // A program that catches the error frees tensors, so what it has at the end says nothing.
    const bool then = p.refusals > 0 && p.last_refused_reserved_bytes > 0;
    const uint64_t reserved = then ? p.last_refused_reserved_bytes : p.reserved_bytes;
    const uint64_t allocated = then ? p.last_refused_allocated_bytes : p.allocated_bytes;
    if (p.device != last.device || reserved == 0) continue;
    fragmented = fragmented || static_cast<double>(reserved) >
                                   thresholds::kFragmentedRatio * static_cast<double>(allocated);
    absl::StrAppend(&evidence, " PyTorch reserved ", Bytes(reserved), " for ", Bytes(allocated),
                    " of tensors.");
    const MemoryLifetimesReport* steps = p.lifetimes.has_value() ? &*p.lifetimes : nullptr;
    if (steps != nullptr && steps->peak_bytes > 0 &&
        static_cast<double>(allocated) > thresholds::kBeyondSteps * static_cast<double>(steps->peak_bytes))
      absl::StrAppend(&evidence, " No complete step before held more than ", Bytes(steps->peak_bytes),
                      ": the rest came after the last one, as in an evaluation or with a larger batch.");
  }
  return {.statement = statement + ".",
          .evidence = evidence,
          .advice = absl::StrCat(fragmented ? "PyTorch reserves much more than its tensors use: try "
                                              "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True first. "
                                            : "",
                                 "report.json lists the largest allocations at the high-water mark and the "
                                 "ranges that made them (memory, out_of_memory); a smaller batch, recomputed "
                                 "activations or sharded optimizer states need less memory.")};
}

// Who it is true of, `count` ranks: `whose` the most.
std::string WhoAlike(const Report& report, const RankReport& whose, size_t count) {
  if (count < 2) return WhoOf(whose);
  if (count == report.ranks.size()) return absl::StrCat("Each of the ", count, " ranks");
  return absl::StrCat(WhoOf(whose), " and ", count - 1, count == 2 ? " other" : " others");
}

// The device whose trend is the worst, by what PyTorch's allocator says where it does: the driver only sees
// what that allocator reserves.
struct Growth {
  const RankReport* rank = nullptr;
  const MemoryTrend* trend = nullptr;
  bool tensors = false;
  const MemoryLifetimesReport* lifetimes = nullptr;
  size_t alike = 0;  // ranks that grow about as fast
};

Growth WorstGrowth(const Report& report) {
  Growth worst;
  const auto consider = [&](const RankReport& r, const std::optional<MemoryTrend>& trend, bool tensors,
                            const std::optional<MemoryLifetimesReport>& lifetimes) {
    if (!trend.has_value() || !trend->growth_bytes_per_step.has_value()) return;
    if (worst.trend == nullptr || *trend->growth_bytes_per_step > *worst.trend->growth_bytes_per_step)
      worst = {&r, &*trend, tensors, lifetimes.has_value() ? &*lifetimes : nullptr};
  };
  std::vector<double> growths;  // the largest of each rank
  for (const RankReport& r : report.ranks) {
    double& largest = growths.emplace_back(0);
    const auto look = [&](const auto& m, bool tensors) {
      consider(r, m.trend, tensors, m.lifetimes);
      if (m.trend.has_value()) largest = std::max(largest, m.trend->growth_bytes_per_step.value_or(0));
    };
    for (const PytorchMemoryReport& p : r.pytorch_memory) look(p, true);
    if (!r.pytorch_memory.empty()) continue;
    for (const DeviceMemoryReport& d : r.device_memory) look(d, false);
  }
  if (worst.trend == nullptr) return worst;
  const double alike = thresholds::kLeakAlikeShare * *worst.trend->growth_bytes_per_step;
  worst.alike = static_cast<size_t>(
      std::count_if(growths.begin(), growths.end(), [alike](double growth) { return growth >= alike; }));
  return worst;
}

void OutOfMemory(const Report& report, std::vector<Finding>& out) {
  for (const RankReport& r : report.ranks) {
    if (r.out_of_memory.empty() || !EndedOverIt(r)) continue;
    out.push_back(Refused(report, r));
    out.back().about = About(r);
  }
}

void AllocationFailed(const Report& report, std::vector<Finding>& out) {
  for (const RankReport& r : report.ranks) {
    if (r.out_of_memory.empty() || EndedOverIt(r)) continue;
    out.push_back(Refused(report, r));
    out.back().evidence +=
        " The program went on: an allocator that gives its cached memory back and asks again waits for the "
        "GPU "
        "each time.";
    out.back().about = About(r);
  }
}

void MemoryLeak(const Report& report, std::vector<Finding>& out) {
  const Growth worst = WorstGrowth(report);
  if (worst.trend == nullptr) return;
  const double per_step = *worst.trend->growth_bytes_per_step;
  std::string statement =
      absl::StrFormat("%s hold%s %s more memory after every step", WhoAlike(report, *worst.rank, worst.alike),
                      Plural(report, worst.alike) ? "" : "s", Bytes(model::WholeNumber(per_step)));
  bool soon = false;
  if (worst.trend->steps_until_full.has_value()) {
    const double steps = *worst.trend->steps_until_full;
    absl::StrAppendFormat(&statement, "; at that rate %s full in %s steps",
                          worst.alike > 1 ? "the first GPU is" : "its GPU is",
                          Count(model::WholeNumber(steps)));
    const double left_ns = steps * report.communication.step_ns;
    if (left_ns > 0) absl::StrAppend(&statement, " (", Span(left_ns), ")");
    soon = left_ns > 0 && left_ns < thresholds::kLeakUrgentNs;
  }
  const std::string kept = worst.lifetimes == nullptr ? "" : GrowthText(*worst.lifetimes);
  out.push_back(
      {.statement = statement + ".",
       .evidence = absl::StrFormat(
           "%s%sThe lowest level of %s between steps kept rising, to %s; each step temporarily adds %s.",
           kept, kept.empty() ? "" : " ", worst.tensors ? "PyTorch's tensors" : "device memory",
           Bytes(worst.trend->held_bytes), Bytes(worst.trend->within_step_bytes)),
       .advice = "Look for objects kept from step to step: losses that still hold their graph (use .item() "
                 "or .detach()), growing lists, unbounded caches.",
       .urgent = soon,
       .about = About(*worst.rank)});
}

void MemoryPressure(const Report& report, std::vector<Finding>& out) {
  const DeviceMemoryReport* worst = nullptr;
  const RankReport* whose = nullptr;
  double least = thresholds::kMemoryLeftShare;
  double widest = 0;  // of those that are near
  size_t alike = 0;
  for (const RankReport& r : report.ranks) {
    bool near = false;
    for (const DeviceMemoryReport& d : r.device_memory) {
      if (d.capacity_bytes.value_or(0) == 0) continue;
      const double left =
          1 - static_cast<double>(d.high_water_bytes) / static_cast<double>(*d.capacity_bytes);
      if (left <= thresholds::kMemoryLeftShare) {
        alike += std::exchange(near, true) ? 0 : 1;
        widest = std::max(widest, left);
      }
      if (left > least) continue;
      least = left;
      worst = &d;
      whose = &r;
    }
  }
  if (worst == nullptr) return;
  out.push_back({.statement = absl::StrFormat(
                     "%s came within %s of %s capacity: %s of %s%s.", WhoAlike(report, *whose, alike),
                     Percent(widest), Plural(report, alike) ? "their GPUs'" : "its GPU's",
                     Bytes(worst->high_water_bytes), Bytes(*worst->capacity_bytes),
                     alike > 1 ? absl::StrCat(" on ", whose->is_device ? "" : "rank ", whose->label) : ""),
                 .evidence = "High-water mark of driver allocations; the context, loaded modules and the "
                             "probe's own buffers come on top.",
                 .advice = "A little more activation memory or fragmentation would end this job: leave more "
                           "headroom, or recompute activations.",
                 .about = About(*whose)});
}

void Fragmentation(const Report& report, std::vector<Finding>& out) {
  const PytorchMemoryReport* worst = nullptr;
  const RankReport* whose = nullptr;
  double most = thresholds::kFragmentedRatio;
  for (const RankReport& r : report.ranks) {
    for (const PytorchMemoryReport& p : r.pytorch_memory) {
      if (p.peak_allocated_bytes == 0 ||
          p.peak_reserved_bytes < p.peak_allocated_bytes + thresholds::kFragmentedBytes)
        continue;
      const double ratio =
          static_cast<double>(p.peak_reserved_bytes) / static_cast<double>(p.peak_allocated_bytes);
      if (ratio <= most) continue;
      most = ratio;
      worst = &p;
      whose = &r;
    }
  }
  if (worst == nullptr) return;
  out.push_back(
      {.statement = absl::StrFormat("PyTorch's allocator on %s reserves %.1fx the peak of its tensors.",
                                    absl::StrCat(whose->is_device ? "" : "rank ", whose->label), most),
       .evidence = absl::StrFormat("Peak reserved %s, peak allocated %s: %s is lost to fragmentation.",
                                   Bytes(worst->peak_reserved_bytes), Bytes(worst->peak_allocated_bytes),
                                   Bytes(worst->fragmentation_bytes.value_or(0))),
       .advice = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; check whether tensor sizes change "
                 "from step to step.",
       .about = About(*whose)});
}

void MemoryElsewhere(const Report& report, std::vector<Finding>& out) {
  for (const StrayMemory& stray : report.conditions.stray_memory) {
    uint64_t total_bytes = 0;
    uint64_t most_bytes = 0;
    uint64_t held_bytes = 0;
    std::vector<int> ranks;
    std::vector<std::string> labels;
    for (const StrayMemory::User& user : stray.users) {
      total_bytes += user.peak_bytes;
      held_bytes += user.held_bytes;
      most_bytes = std::max(most_bytes, user.peak_bytes);
      if (user.rank.has_value()) ranks.push_back(*user.rank);
      labels.push_back(user.label);
    }
    const bool one = stray.users.size() == 1;
    constexpr size_t kMostRanges = 8;
    const std::string who =
        ranks.size() == labels.size() ? RankList(ranks, kMostRanges) : absl::StrJoin(labels, ", ");
    const std::string owner = absl::StrCat(absl::StartsWith(stray.owner, "pid") ? "" : "rank ", stray.owner);
    out.push_back(
        {.statement = absl::StrFormat(
             "%s %s %s memory on GPU %d of %s, on which %s computes: %s%s.",
             ranks.size() == labels.size() ? (one ? "Rank" : "Ranks") : (one ? "Process" : "Processes"), who,
             one ? "holds" : "hold", stray.ordinal, stray.host, owner, Bytes(most_bytes),
             one ? "" : absl::StrCat(" each at most, ", Bytes(total_bytes), " together")),
         .evidence =
             absl::StrCat(one ? "It computes" : "They compute", " on other GPUs. ",
                          held_bytes > 0 ? Bytes(held_bytes) : "None", " of it is still held at the end."),
         .advice = "Call torch.cuda.set_device(LOCAL_RANK) before anything uses CUDA, and load checkpoints "
                   "with map_location=\"cpu\" or the rank's own GPU.",
         .about = {.ranks = ranks}});
  }
}

void PoolFootprint(const Report& report, std::vector<Finding>& out) {
  const PoolReport* worst = nullptr;
  const RankReport* whose = nullptr;
  uint64_t most = thresholds::kPoolBytes;
  for (const RankReport& r : report.ranks) {
    for (const PoolReport& p : r.pools) {
      if (p.used_high_water_bytes == 0) continue;
      const double ratio =
          static_cast<double>(p.reserved_high_water_bytes) / static_cast<double>(p.used_high_water_bytes);
      if (ratio <= thresholds::kPoolRatio || p.reserved_high_water_bytes - p.used_high_water_bytes < most)
        continue;
      most = p.reserved_high_water_bytes - p.used_high_water_bytes;
      worst = &p;
      whose = &r;
    }
  }
  if (worst == nullptr) return;
  out.push_back(
      {.statement = absl::StrFormat(
           "%s's memory pool %d on device %d reserved %s for %s of allocations.", WhoOf(*whose), worst->pool,
           worst->device, Bytes(worst->reserved_high_water_bytes), Bytes(worst->used_high_water_bytes)),
       .evidence = absl::StrFormat(
           "High-water marks of the pool's reserved and used memory. After its last operation: %s reserved, "
           "%s in use; it keeps up to %s (release threshold).",
           Bytes(worst->reserved_bytes), Bytes(worst->used_bytes), Bytes(worst->release_threshold_bytes)),
       .advice = "Memory freed on one stream cannot be reused on another until the streams synchronise: "
                 "allocate and free on the same stream, or make the other stream wait for the free. A lower "
                 "release threshold, or cudaMemPoolTrimTo at a quiet moment, returns the rest.",
       .about = About(*whose)});
}

// When some rank's memory was at its highest.
Moment AtPeak(const Report& report) {
  Moment moment;
  uint64_t most = 0;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceMemoryReport& device : rank.device_memory) {
      if (device.high_water_bytes <= most) continue;
      most = device.high_water_bytes;
      moment.time_ns = device.high_water_at_ns;
    }
  }
  return moment;
}

Moment AtRefusal(const Report& report) {
  for (const RankReport& rank : report.ranks) {
    if (!rank.out_of_memory.empty()) return {.time_ns = rank.out_of_memory.back().time_ns};
  }
  return {};
}

}  // namespace

std::vector<FindingRule> MemoryRules() {
  return {
      {"out-of-memory", FindingTopic::kMemory, Severity::kError,
       absl::StrCat(
           "an allocation failed (out of memory), and the process ended within ",
           condition::Seconds(thresholds::kEndedByRefusalNs),
           " without another step; not if it made a step after an earlier one and exited with success"),
       OutOfMemory, "memory", AtRefusal},
      {"allocation-failed", FindingTopic::kMemory, Severity::kError,
       "an allocation failed (out of memory), and the process went on", AllocationFailed, "memory",
       AtRefusal},
      {"memory-leak", FindingTopic::kMemory, Severity::kWarning,
       absl::StrFormat("memory held between steps keeps growing: a rising trend by the Mann-Kendall test (z "
                       "> %g), in %d rises or more, up to the end of the run, by %s or more",
                       thresholds::kLeakZScore, thresholds::kLeakRises,
                       condition::Share(thresholds::kLeakLevelShare)),
       MemoryLeak, "leak", AtPeak},
      {"memory-elsewhere", FindingTopic::kMemory, Severity::kWarning,
       absl::StrCat("a process holds ", condition::Mib(thresholds::kStrayBytes),
                    " or more on a GPU on which another one computes, and computes on another GPU itself"),
       MemoryElsewhere, "memory", AtPeak},
      {"memory-pressure", FindingTopic::kMemory, Severity::kWarning,
       absl::StrCat("at most ", condition::Share(thresholds::kMemoryLeftShare),
                    " of a GPU's memory was left at the high-water mark"),
       MemoryPressure, "memory", AtPeak},
      {"fragmentation", FindingTopic::kMemory, Severity::kWarning,
       absl::StrCat("PyTorch's allocator reserved more than ", condition::Ratio(thresholds::kFragmentedRatio),
                    " what tensors used, and at least ", condition::Mib(thresholds::kFragmentedBytes),
                    " more, comparing peaks"),
       Fragmentation, "reserved", AtPeak},
      {"pool-footprint", FindingTopic::kMemory, Severity::kWarning,
       absl::StrCat("a stream-ordered memory pool reserved more than ",
                    condition::Ratio(thresholds::kPoolRatio), " what its allocations used, and at least ",
                    condition::Mib(thresholds::kPoolBytes), " more, comparing peaks"),
       PoolFootprint, "memory", AtPeak},
  };
}

}  // namespace gpuprobe::analysis
