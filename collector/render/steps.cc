#include "collector/render/steps.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/report.h"
#include "collector/analysis/step_report.h"
#include "collector/analysis/units.h"

namespace gpuprobe::render {
namespace {

using analysis::Count;
using analysis::Duration;
using analysis::Percent;
using analysis::StepsReport;
using Json = nlohmann::ordered_json;

std::string SourceWords(const std::string& source) {
  if (source == "marker") return "boundaries from the marker";
  if (source == "nvtx") return "boundaries from NVTX ranges";
  if (source == "collectives") return "boundaries from the collective sequence";
  if (source == "kernels") return "boundaries from the kernel sequence";
  return "boundaries from the optimizer's kernels";
}

// "host-bound 48.0 ms, input 12.2 ms", largest first is not needed: there are five.
std::string IdleWords(const StepsReport& s) {
  std::vector<std::string> parts;
  const auto part = [&](const char* name, const model::Summary& time) {
    // Parts that would be shown as nothing are not named.
    if (time.mean > 0.0005 * s.time_ns.mean) parts.push_back(absl::StrCat(name, " ", Duration(time.mean)));
  };
  part("host-bound", s.host_bound_ns);
  part("input", s.input_ns);
  part("sync", s.sync_ns);
  part("launch gaps", s.launch_gap_ns);
  part("unknown", s.unknown_ns);
  return absl::StrJoin(parts, ", ");
}

// "forward 5.06 ms +-80.1 us, backward 12.0 ms (24.0 % idle)".
std::string PhaseWords(const StepsReport& s) {
  constexpr double kLeastIdle = 0.01;
  std::vector<std::string> parts;
  for (const StepsReport::Phase& phase : s.phases) {
    if (phase.time_ns.mean <= 0) continue;
    std::string& part = parts.emplace_back(absl::StrCat(phase.name, " ", Duration(phase.time_ns.mean)));
    if (phase.time_ns.std > 0.5) absl::StrAppend(&part, " +-", Duration(phase.time_ns.std));
    const double idle = phase.idle_ns.mean / phase.time_ns.mean;
    if (idle >= kLeastIdle && idle < 1) absl::StrAppend(&part, " (", Percent(idle), " idle)");
  }
  return absl::StrCat("phases (", s.phase_source, "): ", absl::StrJoin(parts, ", "));
}

std::string Note(const StepsReport& s) {
  std::string note = absl::StrCat(Count(s.count), s.count == 1 ? " step" : " steps");
  if (s.warmup_count > 0)
    absl::StrAppend(&note, ", ", Count(s.warmup_count),
                    s.warmup_count == 1 ? " warm-up step" : " warm-up steps", " excluded");
  absl::StrAppend(&note, ", ", SourceWords(s.source), absl::StrFormat(", confidence %.2f", s.confidence));
  if (s.incomplete_count > 0) {
    const bool one = s.incomplete_count == 1;
    absl::StrAppend(&note, ", records lost in ", Count(s.incomplete_count), one ? " step" : " steps",
                    " (over all ranks), which ", one ? "is" : "are", s.estimated ? " estimated" : " excluded",
                    ": mean +- ", Duration(s.errors->total_ns));
  }
  if (s.overlap_efficiency.has_value()) {
    absl::StrAppend(&note, "; communication ", Duration(s.comm_ns.mean), ", ", Percent(*s.hidden_comm_share),
                    " of it hidden, overlap efficiency ", Percent(*s.overlap_efficiency), " (ideal 100 %)");
  }
  return absl::StrCat(note, "; ", PhaseWords(s));
}

Json ErrorsJson(const std::optional<analysis::StepErrors>& errors) {
  if (!errors.has_value()) return nullptr;
  return {{"total_ns", errors->total_ns},
          {"compute_ns", errors->compute_ns},
          {"comm_ns", errors->comm_ns},
          {"exposed_comm_ns", errors->exposed_comm_ns},
          {"copy_ns", errors->copy_ns},
          {"idle_ns", errors->idle_ns},
          {"overlap_efficiency",
           errors->overlap_efficiency.has_value() ? Json(*errors->overlap_efficiency) : Json(nullptr)}};
}

Json PhasesJson(const StepsReport& s) {
  Json phases = Json::array();
  for (const StepsReport::Phase& phase : s.phases) {
    phases.push_back({{"name", phase.name},
                      {"source", s.phase_source},
                      {"time_ns", StatisticsJson(phase.time_ns)},
                      {"idle_ns", StatisticsJson(phase.idle_ns)}});
  }
  return phases;
}

Json RecordsJson(const StepsReport& s) {
  Json records = Json::array();
  for (const model::StepRecord& r : s.records) {
    Json phases = Json::object();
    for (size_t i = 0; i < model::kStepPhases; ++i) {
      phases[std::string(analysis::PhaseName(static_cast<model::StepPhase>(i)))] = r.phase_ns[i];
    }
    records.push_back({{"index", r.index},
                       {"start_ns", r.start_ns},
                       {"end_ns", r.end_ns},
                       {"first_launch_ns", r.first_launch_ns},
                       {"operations", r.operations},
                       {"compute_ns", r.compute_ns},
                       {"comm_ns", r.comm_ns},
                       {"exposed_comm_ns", r.exposed_comm_ns},
                       {"copy_ns", r.copy_ns},
                       {"idle_ns", r.idle_ns},
                       {"idle",
                        {{"host_bound_ns", r.host_bound_ns},
                         {"input_ns", r.input_ns},
                         {"sync_ns", r.sync_ns},
                         {"launch_gap_ns", r.launch_gap_ns},
                         {"unknown_ns", r.unknown_ns}}},
                       {"phases", phases},
                       {"warmup", r.warmup},
                       {"incomplete", r.incomplete},
                       {"lost_operations", r.lost},
                       {"clock_step_ns", r.clock_step_ns},
                       {"error_ns", r.error_ns}});
  }
  return records;
}

}  // namespace

Json StatisticsJson(const model::Summary& s) {
  return {{"count", s.count}, {"total", s.total},
          {"mean", s.mean},   {"std", s.std},
          {"min", s.min},     {"p50", s.p50},
          {"p95", s.p95},     {"p99", s.p99},
          {"max", s.max},     {"quantiles_exact", s.quantiles_exact}};
}

Table StepsTable(const analysis::Report& report) {
  Table t{.id = kStepsTable,
          .title = "Steps",
          .columns = {"step", "mean", "p50", "p95", "p99", "max", "of step", "std", "of ranks"},
          .left = {true, false, false, false, false, false, false, false, false},
          .rows = {},
          .note = ""};
  if (!report.steps.has_value()) return t;
  const StepsReport& s = *report.steps;
  const auto row = [&](const char* name, const model::Summary& time, double analysis::StepMeans::*part) {
    const std::optional<double> between = analysis::BetweenRanks(report, part);
    t.rows.push_back({name, Duration(time.mean), Duration(time.p50), Duration(time.p95), Duration(time.p99),
                      Duration(static_cast<double>(time.max)),
                      s.time_ns.mean > 0 ? Percent(time.mean / s.time_ns.mean) : "-", Duration(time.std),
                      between.has_value() ? Duration(*between) : "-"});
  };
  row("total", s.time_ns, &analysis::StepMeans::total_ns);
  row("  compute", s.compute_ns, &analysis::StepMeans::compute_ns);
  row("  exposed comm", s.exposed_comm_ns, &analysis::StepMeans::exposed_comm_ns);
  row("  copy", s.copy_ns, &analysis::StepMeans::copy_ns);
  row("  idle", s.idle_ns, &analysis::StepMeans::idle_ns);
  const std::string idle = IdleWords(s);
  t.note = absl::StrCat(idle.empty() ? "" : absl::StrCat("idle: ", idle, "; "),
                        "std: over all steps; of ranks: over the ranks' means; ", Note(s));
  return t;
}

std::string UtilisationLine(const analysis::Report& report) {
  const analysis::UtilisationReport& u = report.utilisation;
  if (!u.asked) return "";
  if (!u.mfu.has_value()) return absl::StrCat("MFU unknown: ", u.missing, ".");
  constexpr double kTera = 1e12;
  std::string line = absl::StrFormat(
      "MFU %s: %.4g TFLOP per step (%s) in %s on %u x %.4g TFLOP/s, the %s peak of %s (%s)", Percent(*u.mfu),
      u.flops_per_step / kTera, u.formula, Duration(report.steps->time_ns.mean), u.devices,
      *u.peak_flops / kTera, u.type, report.conditions.devices.front().name, u.peak_source);
  if (u.hfu.has_value()) {
    absl::StrAppend(
        &line, *u.hfu > *u.mfu ? "; HFU, with recomputed activations, " : "; HFU, without recomputation, ",
        Percent(*u.hfu));
  }
  return line + ".";
}

Json StepsJson(const std::optional<StepsReport>& steps) {
  if (!steps.has_value()) return nullptr;
  const StepsReport& s = *steps;
  const auto share = [](const std::optional<double>& value) {
    return value.has_value() ? Json(*value) : Json(nullptr);
  };
  Json json = {{"count", s.count},
               {"warmup_count", s.warmup_count},
               {"behind", s.behind},
               {"incomplete_count", s.incomplete_count},
               {"estimated", s.estimated},
               {"errors", ErrorsJson(s.errors)},
               {"source", s.source},
               {"confidence", s.confidence},
               {"time_ns", StatisticsJson(s.time_ns)},
               {"compute_ns", StatisticsJson(s.compute_ns)},
               {"comm_ns", StatisticsJson(s.comm_ns)},
               {"exposed_comm_ns", StatisticsJson(s.exposed_comm_ns)},
               {"overlapped_comm_ns", StatisticsJson(s.overlapped_comm_ns)},
               {"copy_ns", StatisticsJson(s.copy_ns)},
               {"idle_ns", StatisticsJson(s.idle_ns)},
               {"idle",
                {{"host_bound_ns", StatisticsJson(s.host_bound_ns)},
                 {"input_ns", StatisticsJson(s.input_ns)},
                 {"sync_ns", StatisticsJson(s.sync_ns)},
                 {"launch_gap_ns", StatisticsJson(s.launch_gap_ns)},
                 {"unknown_ns", StatisticsJson(s.unknown_ns)}}},
               {"overlap_efficiency", share(s.overlap_efficiency)},
               {"hidden_comm_share", share(s.hidden_comm_share)},
               {"phases", PhasesJson(s)}};
  if (!s.records.empty()) json["records"] = RecordsJson(s);
  return json;
}

}  // namespace gpuprobe::render
