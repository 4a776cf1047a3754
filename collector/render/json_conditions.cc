#include "collector/render/json_conditions.h"

#include "collector/analysis/names.h"
#include "collector/render/json_values.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

Json StepsRecordedOf(const std::optional<analysis::StepsRecorded>& steps) {
  if (!steps.has_value()) return nullptr;
  return {{"marker", steps->marker}, {"start", steps->start}, {"stop", OrNull(steps->stop)},
          {"every", steps->every},   {"begun", steps->begun}, {"recorded", steps->recorded}};
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
        {{"what", analysis::EnumWord(o.what)}, {"count", o.count}, {"total_ns", o.duration_ns}});
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

}  // namespace

Json ConditionsJson(const analysis::Conditions& c) {
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
    shared_devices.push_back(
        {{"host", d.host}, {"ordinal", d.ordinal}, {"ranks", d.ranks}, {"processes", d.processes}});
  Json duplicate_ranks = Json::array();
  for (const analysis::DuplicateRank& d : c.duplicate_ranks)
    duplicate_ranks.push_back({{"rank", d.rank}, {"pids", d.pids}});
  return {{"job", c.job},
          {"hosts", c.hosts},
          {"step_marker", TextOrNull(c.step_marker)},
          {"devices", devices},
          {"differing", c.differing},
          {"shared_devices", shared_devices},
          {"duplicate_ranks", duplicate_ranks},
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

Json TrustJson(const analysis::Trust& t) {
  Json lost = Json::object();
  for (const auto& [reason, records] : t.lost) lost[reason] = records;
  Json unknown = Json::object();
  for (const auto& [kind, records] : t.unknown_kinds) unknown[kind] = records;
  Json functions = Json::object();
  for (const auto& [name, imports] : t.unknown_functions) functions[name] = imports;
  Json cut_off = Json::array();
  for (const analysis::CutOff& c : t.cut_off)
    cut_off.push_back(
        {{"who", c.who}, {"last_data_ns", c.last_data_ns}, {"by", c.by_collector ? "collector" : "process"}});
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
          {"device_clock_ahead_ns", t.device_clock_ahead_ns},
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

}  // namespace gpuprobe::render
