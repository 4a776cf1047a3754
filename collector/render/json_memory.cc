#include "collector/render/json_memory.h"

#include "collector/analysis/report/ranks.h"
#include "collector/render/json_values.h"
#include "collector/render/steps.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

Json TrendOf(const std::optional<analysis::MemoryTrend>& trend) {
  if (!trend.has_value()) return nullptr;
  return {{"held_bytes", trend->held_bytes},
          {"within_step_bytes", trend->within_step_bytes},
          {"peak_bytes", trend->peak_bytes},
          {"growth_bytes_per_step", OrNull(trend->growth_bytes_per_step)},
          {"steps_until_full", OrNull(trend->steps_until_full)}};
}

Json ByStepOf(const std::optional<analysis::MemoryBySteps>& by_step) {
  if (!by_step.has_value()) return nullptr;
  Json phases = Json::array();
  for (const analysis::MemoryBySteps::Phase& phase : by_step->phases) {
    phases.push_back({{"name", phase.name},
                      {"steps", phase.steps},
                      {"mean_peak_bytes", phase.mean_peak_bytes},
                      {"peak_bytes", phase.peak_bytes}});
  }
  return {{"step_peak_bytes", StatisticsJson(by_step->step_peak_bytes)}, {"phases", phases}};
}

Json LifetimesOf(const std::optional<analysis::MemoryLifetimesReport>& lifetimes) {
  if (!lifetimes.has_value()) return nullptr;
  Json parts = Json::array();
  for (const analysis::MemoryLifetimesReport::Part& part : lifetimes->parts)
    parts.push_back({{"lifetime", part.lifetime}, {"bytes", part.bytes}});
  Json holdings = Json::array();
  for (const analysis::MemoryLifetimesReport::Holding& h : lifetimes->holdings) {
    holdings.push_back({{"what", h.what},
                        {"lifetime", h.lifetime},
                        {"bytes", h.bytes},
                        {"evidence", TextOrNull(h.evidence)},
                        {"inferred", h.inferred}});
  }
  Json growth = Json::array();
  for (const analysis::MemoryLifetimesReport::Growth& g : lifetimes->growth) {
    growth.push_back({{"size_bytes", g.size_bytes > 0 ? Json(g.size_bytes) : Json(nullptr)},
                      {"phase", g.phase},
                      {"allocations_per_step", g.allocations_per_step},
                      {"bytes_per_step", g.bytes_per_step}});
  }
  return {{"why_not", TextOrNull(lifetimes->why_not)},
          {"steps", lifetimes->steps},
          {"peak_step", lifetimes->peak_step},
          {"peak_at_ns", lifetimes->peak_at_ns},
          {"peak_bytes", lifetimes->peak_bytes},
          {"parts", parts},
          {"from_backward_bytes_per_step", lifetimes->from_backward_bytes_per_step},
          {"holdings", holdings},
          {"growth", growth},
          {"unknown_frees", lifetimes->unknown_frees},
          {"missed_frees", lifetimes->missed_frees},
          {"not_followed", lifetimes->not_followed}};
}

}  // namespace

Json MemoryJson(const analysis::RankReport& r) {
  Json out = Json::object();
  for (const auto& [kind, m] : r.memory) {
    Json largest = Json::array();
    for (const analysis::MemoryReport::Held& held : m.largest)
      largest.push_back({{"bytes", held.bytes}, {"path", TextOrNull(held.path)}});
    out[kind] = {{"high_water_bytes", m.high_water_bytes},
                 {"high_water_error_bytes", m.high_water_error_bytes},
                 {"high_water_at_ns", m.high_water_at_ns > 0 ? Json(m.high_water_at_ns) : Json(nullptr)},
                 {"high_water_range", TextOrNull(m.high_water_range)},
                 {"high_water_path", TextOrNull(m.high_water_path)},
                 {"largest", largest},
                 {"live_bytes", m.live_bytes},
                 {"allocations", m.allocations},
                 {"frees", m.frees},
                 {"small", m.small},
                 {"failed", m.failed},
                 {"largest_failed_bytes", m.largest_failed_bytes}};
  }
  Json pytorch = Json::array();
  for (const analysis::PytorchMemoryReport& p : r.pytorch_memory) {
    pytorch.push_back({{"device", p.device},
                       {"allocated_bytes", p.allocated_bytes},
                       {"reserved_bytes", p.reserved_bytes},
                       {"peak_allocated_bytes", p.peak_allocated_bytes},
                       {"peak_reserved_bytes", p.peak_reserved_bytes},
                       {"fragmentation_bytes", OrNull(p.fragmentation_bytes)},
                       {"refusals", p.refusals},
                       {"last_refused_bytes", p.refusals > 0 ? Json(p.last_refused_bytes) : Json(nullptr)},
                       {"last_refused_path", TextOrNull(p.last_refused_path)},
                       {"last_refused_allocated_bytes",
                        p.refusals > 0 ? Json(p.last_refused_allocated_bytes) : Json(nullptr)},
                       {"last_refused_reserved_bytes",
                        p.refusals > 0 ? Json(p.last_refused_reserved_bytes) : Json(nullptr)},
                       {"by_step", ByStepOf(p.by_step)},
                       {"lifetimes", LifetimesOf(p.lifetimes)},
                       {"trend", TrendOf(p.trend)}});
  }
  if (!pytorch.empty()) out["pytorch"] = pytorch;
  Json pools = Json::array();
  for (const analysis::PoolReport& p : r.pools) {
    pools.push_back({{"pool", p.pool},
                     {"device", p.device},
                     {"used_bytes", p.used_bytes},
                     {"reserved_bytes", p.reserved_bytes},
                     {"at_ns", p.at_ns},
                     {"used_high_water_bytes", p.used_high_water_bytes},
                     {"used_high_water_at_ns",
                      p.used_high_water_at_ns > 0 ? Json(p.used_high_water_at_ns) : Json(nullptr)},
                     {"reserved_high_water_bytes", p.reserved_high_water_bytes},
                     {"reserved_high_water_at_ns",
                      p.reserved_high_water_at_ns > 0 ? Json(p.reserved_high_water_at_ns) : Json(nullptr)},
                     {"release_threshold_bytes", p.release_threshold_bytes},
                     {"trims", p.trims},
                     {"destroyed", p.destroyed}});
  }
  if (!pools.empty()) out["pools"] = pools;
  return out;
}

Json DeviceMemoryJson(const analysis::RankReport& r) {
  Json out = Json::array();
  for (const analysis::DeviceMemoryReport& d : r.device_memory) {
    out.push_back({{"device", d.device},
                   {"source", "driver_allocations"},
                   {"capacity_bytes", OrNull(d.capacity_bytes)},
                   {"high_water_bytes", d.high_water_bytes},
                   {"high_water_error_bytes", d.high_water_error_bytes},
                   {"high_water_at_ns", d.high_water_at_ns > 0 ? Json(d.high_water_at_ns) : Json(nullptr)},
                   {"at_high_water", d.at_high_water},
                   {"by_step", ByStepOf(d.by_step)},
                   {"lifetimes", LifetimesOf(d.lifetimes)},
                   {"trend", TrendOf(d.trend)},
                   {"live_bytes", d.live_bytes}});
  }
  return out;
}

Json OutOfMemoryJson(const analysis::RankReport& r) {
  Json out = Json::array();
  for (const analysis::RefusalReport& o : r.out_of_memory) {
    out.push_back({{"time_ns", o.time_ns},
                   {"memory", o.memory},
                   {"asked_bytes", o.asked_bytes},
                   {"device", o.device},
                   {"path", TextOrNull(o.path)},
                   {"live_bytes", o.live},
                   {"device_live_bytes", o.device_live_bytes},
                   {"capacity_bytes", OrNull(o.capacity_bytes)},
                   {"free_at_most_bytes", OrNull(o.free_at_most_bytes)}});
  }
  return out;
}

}  // namespace gpuprobe::render
