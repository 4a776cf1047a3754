#include "collector/render/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/model/process/process_model.h"
#include "collector/render/collective_table.h"
#include "collector/render/link_table.h"
#include "collector/render/memory_table.h"
#include "collector/render/rank_choice.h"
#include "collector/render/steps.h"
#include "collector/report/report.h"
#include "collector/report/words.h"

namespace gpuprobe::render {
namespace {

using analysis::Bytes;
using analysis::Count;
using analysis::Duration;
using analysis::Percent;
using analysis::Rate;
using analysis::Shorten;

using analysis::Report;

std::string RateOrNone(const analysis::CopyReport& copy) {
  return copy.count == 0 ? "-" : Rate(copy.gbytes_per_s);
}

std::string RankName(const Report& report, const analysis::RankReport& r) {
  return report.conditions.hosts.size() > 1 ? absl::StrCat(r.host, "/", r.label) : r.label;
}

std::string RankTitle(const Report& report, const analysis::RankReport& r) {
  return absl::StrCat(r.is_device ? "" : "rank ", RankName(report, r));
}

// The high-water mark of the device on which it computes, or else used most memory: its kinds, when, and, if
// only one kind, its range. Then that of another device, if it is at least as high.
std::string MemoryPeak(const Report& report, const analysis::RankReport& r) {
  const auto highest =
      std::max_element(r.device_memory.begin(), r.device_memory.end(),
                       [](const analysis::DeviceMemoryReport& a, const analysis::DeviceMemoryReport& b) {
                         return a.high_water_bytes < b.high_water_bytes;
                       });
  if (highest == r.device_memory.end() || highest->high_water_bytes == 0) return "-";
  auto most = std::find_if(
      r.device_memory.begin(), r.device_memory.end(),
      [&](const analysis::DeviceMemoryReport& d) { return r.device == d.device && d.high_water_bytes > 0; });
  if (most == r.device_memory.end()) most = highest;
  std::vector<std::pair<uint64_t, std::string>> kinds;
  for (const auto& [kind, bytes] : most->at_high_water) {
    if (bytes > 0) kinds.emplace_back(bytes, report::Word(kind));
  }
  std::sort(kinds.rbegin(), kinds.rend());
  std::string of = kinds.size() == 1 ? kinds[0].second : "";
  for (size_t i = 0; i < kinds.size() && kinds.size() > 1; ++i)
    absl::StrAppend(&of, i == 0 ? "" : ", ", kinds[i].second, " ", Bytes(kinds[i].first));
  const double at_s = most->high_water_at_ns > report.conditions.start_ns
                          ? static_cast<double>(most->high_water_at_ns - report.conditions.start_ns) / 1e9
                          : 0;
  std::string text = Bytes(most->high_water_bytes);
  if (most->high_water_error_bytes != 0) absl::StrAppend(&text, " +- ", Bytes(most->high_water_error_bytes));
  absl::StrAppendFormat(&text, " (%s%sat %.2f s", of, of.empty() ? "" : ", ", at_s);
  const auto kind = kinds.size() == 1 ? r.memory.find(most->at_high_water.begin()->first) : r.memory.end();
  if (kind != r.memory.end() && kind->second.high_water_at_ns == most->high_water_at_ns &&
      !kind->second.high_water_range.empty())
    absl::StrAppend(&text, ", in ", Shorten(kind->second.high_water_range, 16));
  text += ")";
  if (highest != most)
    absl::StrAppend(&text, ", GPU ", highest->device, ": ", Bytes(highest->high_water_bytes));
  return text;
}

// The pool that took most of its device: memory held against memory in use.
std::string LargestPool(const Report& report) {
  const analysis::PoolReport* largest = nullptr;
  const analysis::RankReport* whose = nullptr;
  for (const analysis::RankReport& r : report.ranks) {
    for (const analysis::PoolReport& p : r.pools) {
      if (p.reserved_high_water_bytes == 0) continue;
      if (largest != nullptr && p.reserved_high_water_bytes <= largest->reserved_high_water_bytes) continue;
      largest = &p;
      whose = &r;
    }
  }
  if (largest == nullptr) return "";
  return absl::StrFormat("largest memory pool: %s, device %d: reserved at most %s, used at most %s",
                         RankTitle(report, *whose), largest->device,
                         Bytes(largest->reserved_high_water_bytes), Bytes(largest->used_high_water_bytes));
}

// Where the ranks' steps differ, and who waits for whom.
Table RankSteps(const Report& report) {
  Table t{.id = "rank-steps",
          .title = "Ranks' steps",
          .columns = {"rank", "step", "compute", "exposed comm", "copy", "idle", "caused wait", "clock"},
          .left = {true, false, false, false, false, false, false, false},
          .rows = {},
          .note =
              "means per step; caused wait: how long each other rank waits in collectives for this one; "
              "clock: lead over the first rank's clock, +- scatter of individual collectives"};
  const RankChoice choice = ChooseRanks(report);
  for (const size_t i : choice.shown) {
    const analysis::RankReport* r = &report.ranks[i];
    if (r->step_means.steps == 0 || report.ranks.size() < 2) continue;
    const analysis::StepMeans& m = r->step_means;
    std::string clock = "-";
    for (const analysis::ClockOffset& c : report.clock.ranks) {
      if (c.label != r->label || c.host != r->host) continue;
      const auto ns = static_cast<double>(c.offset_ns);
      clock = absl::StrCat(ns < 0 ? "-" : "+", Duration(std::abs(ns)));
      if (c.residual_ns > 0) absl::StrAppend(&clock, " +-", Duration(c.residual_ns));
    }
    if (choice.named.count(i) > 0) t.marked.insert(t.rows.size());
    t.rows.push_back({RankName(report, *r), Duration(m.total_ns), Duration(m.compute_ns),
                      Duration(m.exposed_comm_ns), Duration(m.copy_ns), Duration(m.idle_ns),
                      Duration(r->caused.per_step_ns), clock});
  }
  return t;
}

Table Ranks(const Report& report) {
  Table t{.id = "ranks",
          .title = "Ranks",
          .columns = {"rank", "kernels", "busy", "of time", "h2d", "d2h", "d2d", "p2p", "memory peak"},
          .left = {true, false, false, false, false, false, false, false, true},
          .rows = {},
          .note = ""};
  const RankChoice choice = ChooseRanks(report);
  t.note = choice.note;
  if (const std::string pools = LargestPool(report); !pools.empty())
    absl::StrAppend(&t.note, t.note.empty() ? "" : "; ", pools);
  const uint64_t stands_since_ns = analysis::StandstillNs(report.hangs).value_or(UINT64_MAX);
  if (stands_since_ns != UINT64_MAX)
    absl::StrAppend(&t.note, t.note.empty() ? "" : "; ", "of time: up to the hang");
  for (const size_t i : choice.shown) {
    const analysis::RankReport& r = report.ranks[i];
    // What hangs has no record, so the time in which nothing else could run does not count either.
    const uint64_t time_ns =
        stands_since_ns > r.start_ns ? std::min(r.duration_ns, stands_since_ns - r.start_ns) : r.duration_ns;
    const double share = time_ns == 0 ? 0
                                      : static_cast<double>(r.kernel_busy_ns) / static_cast<double>(time_ns) /
                                            static_cast<double>(std::max<size_t>(r.devices.size(), 1));
    if (choice.named.count(i) > 0) t.marked.insert(t.rows.size());
    const bool recorded = IsRecorded(report, r);
    const bool known = recorded && IsInDetail(r);
    t.rows.push_back({absl::StrCat(RankName(report, r), r.cut_off ? " (cut off)" : ""),
                      recorded ? Count(r.kernel_count) : "-",
                      known ? Duration(static_cast<double>(r.kernel_busy_ns)) : "-",
                      known ? Percent(share) : "-", RateOrNone(r.copies.at(v1::COPY_DIRECTION_H2D)),
                      RateOrNone(r.copies.at(v1::COPY_DIRECTION_D2H)),
                      RateOrNone(r.copies.at(v1::COPY_DIRECTION_D2D)),
                      RateOrNone(r.copies.at(v1::COPY_DIRECTION_P2P)), MemoryPeak(report, r)});
  }
  return t;
}

Table Phases(const Report& report) {
  Table t{.id = "phases",
          .title = "Phases",
          .columns = {"phase", "instances", "GPU mean", "std", "p50", "p95", "max", "host mean", "rank min",
                      "rank max"},
          .left = {true, false, false, false, false, false, false, false, false, false},
          .rows = {},
          .note =
              "GPU: union of the work launched in a range, on any thread; rank min and max: over the ranks' "
              "means"};
  constexpr size_t kMaxRows = 24;
  std::map<std::string, std::pair<double, double>> spread;
  for (const analysis::RankReport& r : report.ranks) {
    for (const analysis::PhaseReport& p : r.phases) {
      if (p.gpu_ns.count == 0) continue;
      const auto [it, added] = spread.try_emplace(p.path, p.gpu_ns.mean, p.gpu_ns.mean);
      it->second.first = std::min(it->second.first, p.gpu_ns.mean);
      it->second.second = std::max(it->second.second, p.gpu_ns.mean);
    }
  }
  for (const analysis::PhaseReport& p : report.phases) {
    if (t.rows.size() == kMaxRows) {
      t.note = absl::StrCat(t.note, "; ", report.phases.size() - kMaxRows, " more in report.json");
      break;
    }
    const auto& [low, high] = spread[p.path];
    t.rows.push_back({absl::StrCat(std::string(static_cast<size_t>(p.depth) * 2, ' '), Shorten(p.name, 32)),
                      Count(p.gpu_ns.count), Duration(p.gpu_ns.mean), Duration(p.gpu_ns.std),
                      Duration(p.gpu_ns.p50), Duration(p.gpu_ns.p95),
                      Duration(static_cast<double>(p.gpu_ns.max)), Duration(p.host_ns.mean), Duration(low),
                      Duration(high)});
  }
  return t;
}

Table Kernels(const Report& report) {
  Table t{.id = "kernels",
          .title = "Top kernels",
          .columns = {"kernel", "calls", "total", "of kernel time", "mean", "p50", "p95", "p99"},
          .left = {true, false, false, false, false, false, false, false},
          .rows = {},
          .note = ""};
  constexpr size_t kMaxRows = 10;
  constexpr size_t kNameWidth = 48;
  double all = 0;
  for (const analysis::RankReport& r : report.ranks) all += static_cast<double>(r.kernel_total_ns);
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(report.top_kernels.size(), kMaxRows); ++i)
    names.push_back(report.top_kernels[i].name);
  names = analysis::KernelNames(names, kNameWidth);
  for (size_t i = 0; i < names.size(); ++i) {
    const analysis::KernelReport& k = report.top_kernels[i];
    const auto total = static_cast<double>(k.time_ns.total);
    t.rows.push_back({names[i], Count(k.time_ns.count), Duration(total), all > 0 ? Percent(total / all) : "-",
                      Duration(k.time_ns.mean), Duration(k.time_ns.p50), Duration(k.time_ns.p95),
                      Duration(k.time_ns.p99)});
  }
  return t;
}

Table KernelClasses(const Report& report) {
  Table t{.id = "kernel-classes",
          .title = "Kernels by class",
          .columns = {"class", "calls", "total", "of kernel time", "mean"},
          .left = {true, false, false, false, false},
          .rows = {},
          .note = "inferred from kernel names"};
  const analysis::ComputeReport& c = report.compute;
  // A single class is not a breakdown: the program's kernels have names of their own.
  if (c.classes.size() < 2) return t;
  for (const analysis::KernelClassReport& k : c.classes) {
    const auto total = static_cast<double>(k.total_ns);
    t.rows.push_back({report::Word(k.kernel_class), Count(k.calls), Duration(total), Percent(k.share),
                      Duration(total / static_cast<double>(k.calls))});
  }
  if (c.optimizer_traffic.has_value()) {
    const analysis::OptimizerTraffic& traffic = *c.optimizer_traffic;
    absl::StrAppend(&t.note, "; the optimizer must move at least ", Bytes(traffic.bytes_per_step),
                    " per step and takes ", Duration(traffic.time_ns_per_step), ": ",
                    analysis::Rate(traffic.gbytes_per_s));
    if (traffic.peak_gbytes_per_s.has_value())
      absl::StrAppend(&t.note, ", ", Percent(traffic.gbytes_per_s / *traffic.peak_gbytes_per_s),
                      " of memory bandwidth");
    absl::StrAppend(&t.note, " (estimated from memory contents)");
  }
  if (c.kernels > 0) {
    absl::StrAppend(
        &t.note, "; ", Percent(static_cast<double>(c.short_kernels) / static_cast<double>(c.kernels)),
        " of calls take less than ", Duration(static_cast<double>(model::ProcessModel::kShortKernelNs)));
  }
  return t;
}

// Causes and places with a fiftieth of the step or more.
Table HostTime(const Report& report) {
  Table t{.id = "host-time",
          .title = "What hosts do while GPUs wait for them",
          .columns = {"idle", "per step", "of step", "samples", "where"},
          .left = {true, false, false, false, true},
          .rows = {},
          .note =
              "mean over all ranks; by the line of the program that has most of it (gpuprobe query DIR "
              "\"SELECT * FROM host_places\" has all)"};
  constexpr double kLeastStepShare = 0.02;
  if (!report.steps.has_value()) return t;
  const double step_ns = report.steps->time_ns.mean;
  const auto add = [&](const std::string& cause, double ns, const std::string& samples,
                       const std::string& where) {
    t.rows.push_back({cause, Duration(ns), Percent(ns / step_ns), samples, where});
  };
  for (const analysis::HostTimeReport& time : report.host_time) {
    if (time.cause == model::IdleCause::kBlocked || time.ns_per_step < kLeastStepShare * step_ns) continue;
    std::string cause = report::Word(time.cause);
    std::replace(cause.begin(), cause.end(), '_', ' ');
    add(cause, time.ns_per_step, Count(time.samples), "");
    for (const analysis::HostPlaceReport& place : time.places) {
      if (place.ns_per_step >= kLeastStepShare * step_ns)
        add("", place.ns_per_step, Count(place.samples), analysis::HostPlaceText(place));
    }
    if (time.not_sampled_ns_per_step >= kLeastStepShare * step_ns)
      add("", time.not_sampled_ns_per_step, "", "not sampled");
  }
  return t;
}

}  // namespace

std::vector<Table> TablesOf(const Report& report) {
  std::vector<Table> tables{StepsTable(report),         Ranks(report),
                            RankSteps(report),          HostTime(report),
                            MemoryTable(report.ranks),  Phases(report),
                            CollectivesTable(report),   LinksTable(report.communication.links),
                            CommunicatorsTable(report), Kernels(report),
                            KernelClasses(report)};
  std::erase_if(tables, [](const Table& t) { return t.rows.empty(); });
  return tables;
}

namespace {

// What CUPTI reports of its own work, most of which is not on the program's threads, if it is much.
std::string OverheadText(const analysis::OwnCost& cost) {
  constexpr double kWorthSaying = 0.01;
  if (cost.cupti_overhead_fraction.value_or(0) < kWorthSaying) return "";
  std::string name = cost.overheads.front().what;
  std::replace(name.begin(), name.end(), '_', ' ');
  return absl::StrFormat("; CUPTI reports %.2g %% for its own work, on any thread (most overhead: %s)",
                         *cost.cupti_overhead_fraction * 100, name);
}

std::string OwnAndEstimateText(const analysis::OwnCost& cost) {
  if (!cost.own_fraction.has_value()) return "not measured";
  std::string own = absl::StrFormat("%.2g %%", *cost.own_fraction * 100);
  if (!cost.expected_most.has_value() || *cost.expected_most <= 0) return own;
  constexpr double kNotWorthASpan = 0.0005;
  if (*cost.expected_most < kNotWorthASpan)
    return absl::StrCat(own, " + CUPTI's part, estimated below 0.05 % (based on H100 figures)");
  return absl::StrFormat("%s + CUPTI's part, estimated at %.2g to %.2g %% (based on H100 figures)", own,
                         *cost.expected_least * 100, *cost.expected_most * 100);
}

}  // namespace

std::string CostText(const analysis::OwnCost& cost) {
  return absl::StrCat(OwnAndEstimateText(cost), OverheadText(cost));
}

// Processes that allocated on a GPU or called NCCL, and of whose GPU work no record came although it did of
// others'; at levels idle and calls, of a capture that it says it made.
size_t RanksWithoutRecords(const Report& report) {
  size_t without = 0;
  for (const analysis::RankReport& r : report.ranks) {
    if (!IsRecorded(report, r)) continue;
    const bool used = !r.collectives.empty() || !r.device_memory.empty();
    if (used && r.kernel_count == 0 && r.copies.at(v1::COPY_DIRECTION_H2D).count == 0) ++without;
  }
  return without < report.ranks.size() ? without : 0;
}

std::string Headline(const Report& report) {
  const analysis::Conditions& c = report.conditions;
  const analysis::Trust& t = report.trust;
  std::string line = absl::StrCat("gpuprobe: ", c.ranks_heard);
  if (c.ranks_expected.has_value() && *c.ranks_expected != c.ranks_heard)
    absl::StrAppend(&line, " of ", *c.ranks_expected);
  const bool several = std::any_of(report.ranks.begin(), report.ranks.end(),
                                   [](const analysis::RankReport& r) { return r.is_device; });
  const bool alone = c.ranks_heard == 1 && c.ranks_expected.value_or(1) == 1;
  absl::StrAppend(&line, several && alone ? " process" : alone ? " rank" : " ranks");
  // Those of ranks that were not recorded are not known to be used.
  const bool all = std::all_of(report.ranks.begin(), report.ranks.end(),
                               [&](const analysis::RankReport& r) { return IsRecorded(report, r); });
  const bool names_gpus = c.devices_used > 0 && all;
  if (names_gpus)
    absl::StrAppend(&line, several ? " driving " : " on ", c.devices_used,
                    c.devices_used == 1 ? " GPU" : " GPUs");
  const char* where = names_gpus && !several ? " of " : " on ";
  if (c.hosts.size() == 1) {
    absl::StrAppend(&line, where, c.hosts.front());
  } else if (c.hosts.size() > 1) {
    absl::StrAppend(&line, where, c.hosts.size(), " hosts");
  }
  absl::StrAppend(&line, absl::StrFormat(" in %.1f s, ", static_cast<double>(c.duration_ns) / 1e9),
                  Count(t.records), " records, ",
                  t.lost_total == 0 ? "0 records lost" : absl::StrCat(Count(t.lost_total), " records LOST"));
  if (const size_t without = RanksWithoutRecords(report); without > 0)
    absl::StrAppend(&line, ", NO GPU records from ", without, without == 1 ? " rank" : " ranks");
  if (t.unrecorded_frames > 0) {
    absl::StrAppend(&line, ", ", Count(t.unrecorded_frames), t.unrecorded_frames == 1 ? " batch" : " batches",
                    " NOT WRITTEN to disk (counted here, missing from the log)");
  }
  return absl::StrCat(line, ", own cost ", CostText(t.cost));
}

namespace {

std::string StepsRecordedText(const analysis::StepsRecorded& steps) {
  std::string text =
      absl::StrCat("only ", Count(steps.recorded), " of ", Count(steps.begun), " steps recorded");
  if (steps.every > 1) absl::StrAppend(&text, ", one in ", Count(steps.every));
  if (steps.start > 0) absl::StrAppend(&text, ", from step ", Count(steps.start));
  if (steps.stop.has_value()) absl::StrAppend(&text, ", before step ", Count(*steps.stop));
  return absl::StrCat(text, " (", steps.marker, "): counts and totals cover only these");
}

std::string OnDemandText(const analysis::OnDemand& demand) {
  constexpr size_t kMostNamed = 4;
  if (demand.windows.empty()) return absl::StrCat("level ", demand.level, ": nothing was captured");
  std::vector<std::string> windows;
  for (const analysis::CapturedWindow& window : demand.windows) {
    if (windows.size() == kMostNamed) break;
    const double seconds = static_cast<double>(window.end_ns - window.start_ns) / 1e9;
    windows.push_back(
        !window.first_step.has_value() ? absl::StrFormat("%.3g s", seconds)
        : window.first_step == window.last_step
            ? absl::StrCat("step ", Count(*window.first_step))
            : absl::StrCat("steps ", Count(*window.first_step), " to ", Count(window.last_step.value_or(0))));
  }
  if (demand.windows.size() > kMostNamed)
    windows.push_back(absl::StrCat(demand.windows.size() - kMostNamed, " more"));
  return absl::StrCat("level ", demand.level, ": captured ", absl::StrJoin(windows, ", "),
                      "; counts and totals cover only this");
}

}  // namespace

std::string ConditionsLine(const Report& report) {
  const analysis::Conditions& c = report.conditions;
  std::vector<std::string> parts;
  std::map<std::string, int> devices;
  for (const analysis::DeviceCondition& d : c.devices) {
    if (!d.name.empty()) ++devices[d.name];
  }
  parts.reserve(devices.size() + 4);
  for (const auto& [name, count] : devices) parts.push_back(absl::StrCat(count, "x ", name));
  if (!c.cuda_driver.empty()) parts.push_back(absl::StrCat("CUDA ", c.cuda_driver));
  if (!c.nccl.empty()) parts.push_back(absl::StrCat("NCCL ", c.nccl));
  switch (report.trust.timing_source) {
    case analysis::Trust::TimingSource::kCuptiActivity:
      parts.push_back("GPU times from CUPTI activity");
      break;
    case analysis::Trust::TimingSource::kNone:
      parts.push_back("no GPU times");
      break;
    case analysis::Trust::TimingSource::kMixed:
      parts.push_back("GPU times from some ranks only");
      break;
  }
  if (c.steps_recorded.has_value()) parts.push_back(StepsRecordedText(*c.steps_recorded));
  if (c.on_demand.has_value()) parts.push_back(OnDemandText(*c.on_demand));
  return absl::StrJoin(parts, ", ");
}

}  // namespace gpuprobe::render
