#include "collector/render/json_report.h"

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/render/json_ranks.h"
#include "collector/render/json_text.h"
#include "collector/render/json_values.h"
#include "collector/render/steps.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

Json Statistics(const model::Summary& s) { return StatisticsJson(s); }

Json StepsRecordedOf(const std::optional<analysis::StepsRecorded>& steps) {
  if (!steps.has_value()) return nullptr;
  return {{"marker", steps->marker}, {"start", steps->start}, {"stop", OrNull(steps->stop)},
          {"every", steps->every},   {"begun", steps->begun}, {"recorded", steps->recorded}};
}

Json TrafficOf(const std::optional<analysis::OptimizerTraffic>& traffic) {
  if (!traffic.has_value()) return nullptr;
  return {{"bytes_per_step", traffic->bytes_per_step},
          {"time_ns_per_step", traffic->time_ns_per_step},
          {"gbytes_per_s", traffic->gbytes_per_s},
          {"peak_gbytes_per_s", OrNull(traffic->peak_gbytes_per_s)}};
}

Json ConditionsOf(const analysis::Conditions& c) {
  Json devices = Json::array();
  for (const analysis::DeviceCondition& d : c.devices) {
    devices.push_back(
        {{"host", d.host},
         {"ordinal", d.ordinal},
         {"name", d.name},
         {"uuid", d.uuid},
         {"memory_bytes", d.memory_bytes},
         {"memory_gbytes_per_s", d.memory_gbytes_per_s > 0 ? Json(d.memory_gbytes_per_s) : Json(nullptr)}});
  }
  Json shared_devices = Json::array();
  for (const analysis::SharedDevice& d : c.shared_devices)
    shared_devices.push_back({{"host", d.host}, {"ordinal", d.ordinal}, {"ranks", d.ranks}});
  return {{"job", c.job},
          {"hosts", c.hosts},
          {"step_marker", TextOrNull(c.step_marker)},
          {"devices", devices},
          {"differing", c.differing},
          {"shared_devices", shared_devices},
          {"cuda_driver", TextOrNull(c.cuda_driver)},
          {"cuda_runtime", TextOrNull(c.cuda_runtime)},
          {"cupti", TextOrNull(c.cupti)},
          {"nccl", TextOrNull(c.nccl)},
          {"probe_version", c.probe_version},
          {"collector_version", c.collector_version},
          {"command_line", c.command_line},
          {"start_ns", c.start_ns},
          {"duration_ns", c.duration_ns},
          {"world_size", c.world_size > 0 ? Json(c.world_size) : Json(nullptr)},
          {"ranks_heard", c.ranks_heard},
          {"ranks_expected", OrNull(c.ranks_expected)},
          {"steps_recorded", StepsRecordedOf(c.steps_recorded)}};
}

const char* DetailName(v1::DetailLevel level) {
  switch (level) {
    case v1::DETAIL_LEVEL_GRAPHS:
      return "graphs";
    case v1::DETAIL_LEVEL_WINDOWS:
      return "windows";
    case v1::DETAIL_LEVEL_CALLBACKS:
      return "callbacks";
    case v1::DETAIL_LEVEL_OFF:
      return "off";
    default:
      return "full";
  }
}

Json CostOf(const analysis::OwnCost& c) {
  const bool compared = c.compared > 0;
  Json overheads = Json::array();
  for (const analysis::OwnCost::Overhead& o : c.overheads)
    overheads.push_back(
        {{"what", analysis::OverheadName(o.what)}, {"count", o.count}, {"total_ns", o.duration_ns}});
  return {{"own_fraction", OrNull(c.own_fraction)},
          {"own_sampling", c.own_sampling},
          {"launches", c.launches},
          {"launch_fraction", OrNull(c.launch_fraction)},
          {"expected_cupti_least", OrNull(c.expected_least)},
          {"expected_cupti_most", OrNull(c.expected_most)},
          {"cupti_fraction", OrNull(c.cupti_fraction)},
          {"cupti_error", compared ? Json(c.cupti_error) : Json(nullptr)},
          {"with_recording_ns", compared ? Json(c.with_recording_ns) : Json(nullptr)},
          {"without_recording_ns", compared ? Json(c.without_recording_ns) : Json(nullptr)},
          {"callbacks_ns", compared ? Json(c.callbacks_ns) : Json(nullptr)},
          {"compared_processes", c.compared},
          {"unrecorded_launches", c.unrecorded_launches},
          {"cupti_overhead_fraction", OrNull(c.cupti_overhead_fraction)},
          {"overheads", overheads}};
}

// The standard deviation of the ranks' means, for each part of the step.
Json BetweenRanksJson(const analysis::Report& report) {
  using analysis::StepMeans;
  const auto of = [&](double StepMeans::*part) { return OrNull(analysis::BetweenRanks(report, part)); };
  return {{"total_ns", of(&StepMeans::total_ns)},
          {"compute_ns", of(&StepMeans::compute_ns)},
          {"exposed_comm_ns", of(&StepMeans::exposed_comm_ns)},
          {"copy_ns", of(&StepMeans::copy_ns)},
          {"idle_ns", of(&StepMeans::idle_ns)}};
}

Json TrustOf(const analysis::Trust& t) {
  Json lost = Json::object();
  for (const auto& [reason, records] : t.lost) lost[reason] = records;
  Json unknown = Json::object();
  for (const auto& [kind, records] : t.unknown_kinds) unknown[kind] = records;
  Json functions = Json::object();
  for (const auto& [name, imports] : t.unknown_functions) functions[name] = imports;
  Json cut_off = Json::array();
  for (const analysis::CutOff& c : t.cut_off)
    cut_off.push_back({{"who", c.who}, {"last_data_ns", c.last_data_ns}});
  Json cupti_defects = Json::array();
  for (const cupti::KnownDefect* d : t.cupti_defects)
    cupti_defects.push_back({{"defect", d->defect}, {"left_out", d->left_out}, {"source", d->source}});
  return {{"records", t.records},
          {"lost", lost},
          {"coverage", OrNull(t.coverage)},
          {"outside_window", t.outside_window},
          {"unknown_kinds", unknown},
          {"unknown_functions", functions},
          {"other_unknown_functions", t.other_unknown_functions},
          {"detail",
           {{"level", DetailName(t.detail_level)},
            {"reductions", t.detail_reductions},
            {"reduced_ns", t.reduced_ns}}},
          {"yielded", {{"times", t.yields}, {"ns", t.yielded_ns}}},
          {"cupti_defects", cupti_defects},
          {"timing_source", t.timing_source},
          {"overhead_fraction", OrNull(t.cost.Total())},
          {"cost", CostOf(t.cost)},
          {"host_time_error_ns", t.host_time_error_ns},
          {"clock_step_ns", t.clock_step_ns},
          {"batches_missing", t.batches_missing},
          {"recorded_elsewhere", t.recorded_elsewhere},
          {"device_records_unattributed", t.device_records_unattributed},
          {"device_records_late", t.device_records_late},
          {"invalid_times", t.invalid_times},
          {"range_pops_without_push", t.range_pops_without_push},
          {"range_ends_without_start", t.range_ends_without_start},
          {"ranges_unclosed", t.ranges_unclosed},
          {"unrecorded_frames", t.unrecorded_frames},
          {"detail_since_ns", t.detail_since_ns == 0 ? Json(nullptr) : Json(t.detail_since_ns)},
          {"cut_off", cut_off},
          {"exit_incomplete", t.exit_incomplete},
          {"damaged_logs", t.damaged_logs}};
}

Json RanAsOf(const analysis::CollectiveReport& c) {
  Json out = Json::array();
  for (const auto& how : c.ran_as) {
    out.push_back({{"algorithm", how.algorithm},
                   {"protocol", how.protocol},
                   {"channels", how.channels},
                   {"calls", how.calls}});
  }
  return out;
}

Json SteadyOf(const analysis::SteadyCalls& steady) {
  if (steady.compared == 0) return nullptr;
  return {{"compared_plans", steady.compared},
          {"plans_per_step", steady.steps > 0 ? Json(steady.plans_per_step) : Json(nullptr)},
          {"transfer_ns", steady.transfer_ns},
          {"transfer_std_ns", steady.transfer_std_ns},
          {"wait_ns", steady.wait_ns}};
}

Json SteadyOf(const std::optional<analysis::SteadyKernel>& steady) {
  if (!steady.has_value()) return nullptr;
  return {{"steps", steady->steps},
          {"calls_per_step", steady->calls},
          {"time_ns_per_step", steady->time_ns},
          {"std_ns", steady->std_ns}};
}

Json CollectiveOf(const analysis::CollectiveReport& c) {
  return {{"op", c.op},
          {"comm", c.comm},
          {"comm_name", TextOrNull(c.comm_name)},
          {"comm_ranks", c.comm_ranks > 0 ? Json(c.comm_ranks) : Json(nullptr)},
          {"heard_ranks", c.heard_ranks > 0 ? Json(c.heard_ranks) : Json(nullptr)},
          {"fused", c.fused},
          {"calls_per_plan", c.calls_per_plan},
          {"size_bytes", c.size_bytes > 0 ? Json(c.size_bytes) : Json(nullptr)},
          {"calls", c.calls},
          {"failed_calls", c.failed_calls},
          {"untimed_calls", c.untimed_calls},
          {"unlaunched_calls", c.unlaunched_calls},
          {"bytes", c.bytes},
          {"time_ns", Statistics(c.time_ns)},
          {"algbw_gbytes_per_s", OrNull(c.algbw)},
          {"busbw_gbytes_per_s", OrNull(c.busbw)},
          {"transfer_busbw_gbytes_per_s", OrNull(c.transfer_busbw)},
          {"peak_share", OrNull(c.peak_share)},
          {"wait_ns", OrNull(c.wait_ns)},
          {"transfer_mean_ns", OrNull(c.transfer_mean_ns)},
          {"compared_plans", c.compared_plans},
          {"steady", SteadyOf(c.steady)},
          {"algorithm", c.ran_as.empty() ? Json(nullptr) : Json(c.ran_as.front().algorithm)},
          {"protocol", c.ran_as.empty() ? Json(nullptr) : Json(c.ran_as.front().protocol)},
          {"channels", c.ran_as.empty() ? Json(nullptr) : Json(c.ran_as.front().channels)},
          {"ran_as", RanAsOf(c)}};
}

Json CollectivesOf(const std::vector<analysis::CollectiveReport>& collectives) {
  Json out = Json::array();
  for (const analysis::CollectiveReport& c : collectives) out.push_back(CollectiveOf(c));
  return out;
}

Json PhasesOf(const std::vector<analysis::PhaseReport>& phases) {
  Json out = Json::array();
  for (const analysis::PhaseReport& p : phases) {
    out.push_back({{"name", p.name},
                   {"path", p.path},
                   {"depth", p.depth},
                   {"time_ns", Statistics(p.gpu_ns)},
                   {"host_time_ns", Statistics(p.host_ns)},
                   {"unclosed", p.unclosed}});
  }
  return out;
}

Json KernelsOf(const std::vector<analysis::KernelReport>& kernels) {
  Json out = Json::array();
  for (const analysis::KernelReport& k : kernels) {
    out.push_back({{"name", k.name},
                   {"class", k.kernel_class},
                   {"share", k.share},
                   {"time_ns", Statistics(k.time_ns)},
                   {"steady", SteadyOf(k.steady)},
                   {"grid", k.geometry.grid},
                   {"block", k.geometry.block},
                   {"geometries", k.geometries}});
  }
  return out;
}

Json ComputeOf(const analysis::ComputeReport& c) {
  Json classes = Json::array();
  for (const analysis::KernelClassReport& k : c.classes)
    classes.push_back({{"class", k.name}, {"calls", k.calls}, {"total_ns", k.total_ns}, {"share", k.share}});
  Json pageable = Json::object();
  for (const auto& [direction, p] : c.pageable) {
    pageable[direction] = {{"count", p.count},
                           {"bytes", p.bytes},
                           {"duration_ns", p.duration_ns},
                           {"share", p.share},
                           {"gbytes_per_s", p.gbytes_per_s},
                           {"pinned_gbytes_per_s", OrNull(p.pinned_gbytes_per_s)},
                           {"copies_per_step", p.copies_per_step},
                           {"ns_per_step", p.ns_per_step}};
  }
  return {{"kernels", c.kernels},
          {"total_ns", c.total_ns},
          {"classes", classes},
          {"short_kernels",
           {{"below_ns", model::ProcessModel::kShortKernelNs},
            {"count", c.short_kernels},
            {"total_ns", c.short_kernel_ns}}},
          {"optimizer_traffic", TrafficOf(c.optimizer_traffic)},
          {"pageable_copies", pageable},
          {"host_peak_gbytes_per_s", OrNull(c.host_peak_gbytes_per_s)}};
}

Json UtilisationOf(const analysis::UtilisationReport& u) {
  if (!u.asked) return nullptr;
  return {{"mfu", OrNull(u.mfu)},
          {"hfu", OrNull(u.hfu)},
          {"flops_per_step", u.flops_per_step},
          {"formula", u.formula},
          {"type", u.type},
          {"devices", u.devices},
          {"peak_flops", OrNull(u.peak_flops)},
          {"peak_source", TextOrNull(u.peak_source)},
          {"missing", TextOrNull(u.missing)}};
}

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
  return {{"step_peak_bytes", Statistics(by_step->step_peak_bytes)}, {"phases", phases}};
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

Json MemoryOf(const analysis::RankReport& r) {
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

Json DeviceMemoryOf(const analysis::RankReport& r) {
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

Json OutOfMemoryOf(const analysis::RankReport& r) {
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

Json RankOf(const analysis::RankReport& r) {
  Json copies = Json::object();
  for (const auto& [direction, c] : r.copies) {
    copies[direction] = {{"count", c.count},
                         {"bytes", c.bytes},
                         {"busy_ns", c.busy_ns},
                         {"gbytes_per_s", c.gbytes_per_s},
                         {"small", c.small}};
  }
  Json syncs = Json::object();
  for (const auto& [what, s] : r.syncs) syncs[what] = {{"count", s.count}, {"duration_ns", s.duration_ns}};
  return {{"rank", OrNull(r.rank)},
          {"host", r.host},
          {"pid", r.pid},
          {"device", OrNull(r.device)},
          {"devices", r.devices},
          {"start_ns", r.start_ns},
          {"duration_ns", r.duration_ns},
          {"cut_off", r.cut_off},
          {"end", HaltJson(r.end)},
          {"stops", StopsJson(r.stops)},
          {"host_load", HostLoadJson(r.host_load)},
          {"kernels",
           {{"count", r.kernel_count},
            {"busy_ns", r.kernel_busy_ns},
            {"total_ns", r.kernel_total_ns},
            {"from_graphs", r.graph_kernels},
            {"launch_delay_ns", Statistics(r.launch_delay_ns)}}},
          {"copies", copies},
          {"memsets", {{"count", r.memset_count}, {"bytes", r.memset_bytes}, {"duration_ns", r.memset_ns}}},
          {"syncs", syncs},
          {"wait", CausedWaitJson(r.caused)},
          {"sync", {{"count", r.blocked.count}, {"blocked_ns", r.blocked.duration_ns}}},
          {"collectives", CollectivesOf(r.collectives)},
          {"memory", MemoryOf(r)},
          {"device_memory", DeviceMemoryOf(r)},
          {"out_of_memory", OutOfMemoryOf(r)},
          {"phases", PhasesOf(r.phases)},
          {"top_kernels", KernelsOf(r.top_kernels)},
          {"steps", StepsJson(r.steps)}};
}

const char* SeverityName(analysis::Severity severity) {
  switch (severity) {
    case analysis::Severity::kError:
      return "error";
    case analysis::Severity::kWarning:
      return "warning";
    default:
      return "info";
  }
}

// Where few would read all of a rank: the fields that tell which ranks to look at, each named and placed as
// in the whole entry.
Json BriefRankOf(const analysis::RankReport& r) {
  Json steps = nullptr;
  if (r.steps.has_value()) {
    const analysis::StepsReport& s = *r.steps;
    steps = {{"count", s.count},
             {"time_ns", {{"mean", s.time_ns.mean}}},
             {"compute_ns", {{"mean", s.compute_ns.mean}}},
             {"exposed_comm_ns", {{"mean", s.exposed_comm_ns.mean}}},
             {"copy_ns", {{"mean", s.copy_ns.mean}}},
             {"idle_ns", {{"mean", s.idle_ns.mean}}}};
  }
  Json memory = Json::object();
  for (const auto& [kind, m] : r.memory) {
    if (m.high_water_bytes > 0) memory[kind] = {{"high_water_bytes", m.high_water_bytes}};
  }
  const bool stepped = r.caused.steps > 0;
  return {{"rank", OrNull(r.rank)},
          {"host", r.host},
          {"pid", r.pid},
          {"device", OrNull(r.device)},
          {"cut_off", r.cut_off},
          {"kernels", {{"count", r.kernel_count}, {"busy_ns", r.kernel_busy_ns}}},
          {"wait",
           {{"caused_per_step_ns", stepped ? Json(r.caused.per_step_ns) : Json(nullptr)},
            {"waited_ns", r.caused.waited_ns}}},
          {"memory", memory},
          {"steps", steps}};
}

Json FindingsOf(const std::vector<analysis::Finding>& all) {
  Json findings = Json::array();
  for (const analysis::Finding& f : all) {
    findings.push_back({{"id", f.id},
                        {"severity", SeverityName(f.severity)},
                        {"statement", f.statement},
                        {"evidence", f.evidence},
                        {"advice", f.advice},
                        {"cost_ns_per_step", OrNull(f.cost_ns_per_step)}});
  }
  return findings;
}

Json ReportOf(const analysis::Report& report, Json ranks, Json ranks_in) {
  return {{"schema_version", kReportSchemaVersion},
          {"conditions", ConditionsOf(report.conditions)},
          {"trust", TrustOf(report.trust)},
          {"steps", StepsJson(report.steps)},
          {"ranks_in", std::move(ranks_in)},
          {"ranks", std::move(ranks)},
          {"collectives", CollectivesOf(report.collectives)},
          {"phases", PhasesOf(report.phases)},
          {"top_kernels", KernelsOf(report.top_kernels)},
          {"compute", ComputeOf(report.compute)},
          {"utilisation", UtilisationOf(report.utilisation)},
          {"stragglers", StragglersJson(report)},
          {"long_steps", LongStepsJson(report)},
          {"clock", ClockJson(report)},
          {"communication", CommunicationJson(report)},
          {"between_ranks", BetweenRanksJson(report)},
          {"communicators", CommunicatorsJson(report)},
          {"hangs", HangsJson(report)},
          {"past_hangs", PastHangsJson(report)},
          {"findings", FindingsOf(report.findings)}};
}

}  // namespace

std::string JsonReport(const analysis::Report& report) {
  Json ranks = Json::array();
  for (const analysis::RankReport& r : report.ranks) ranks.push_back(RankOf(r));
  return JsonText(ReportOf(report, std::move(ranks), nullptr)) + "\n";
}

JsonFiles JsonReportFiles(const analysis::Report& report) {
  // Rank by rank: for a thousand, the values alone would take hundreds of megabytes.
  constexpr size_t kIndent = 4;
  std::string ranks;
  for (const analysis::RankReport& r : report.ranks)
    absl::StrAppend(&ranks, ranks.empty() ? "" : ",", "\n    ", JsonText(RankOf(r), kIndent));
  if (ranks.size() <= kReportBytes) {
    std::string whole = JsonReport(report);
    if (whole.size() <= kReportBytes) return {.report = std::move(whole), .ranks = ""};
  }
  Json brief = Json::array();
  for (const analysis::RankReport& r : report.ranks) brief.push_back(BriefRankOf(r));
  return {.report = JsonText(ReportOf(report, std::move(brief), kRanksFile)) + "\n",
          .ranks = absl::StrCat("{\n  \"schema_version\": ", kReportSchemaVersion, ",\n  \"ranks\": [", ranks,
                                "\n  ]\n}\n")};
}

}  // namespace gpuprobe::render
