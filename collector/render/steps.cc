#include "collector/render/steps.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/steps/step_report.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"
#include "collector/report/words.h"

namespace gpuprobe::render {
namespace {

using analysis::Count;
using analysis::Duration;
using analysis::Percent;
using analysis::StepsReport;

std::string SourceWords(model::StepSource source) {
  switch (source) {
    case model::StepSource::kMarker:
      return "boundaries from the marker";
    case model::StepSource::kNvtx:
      return "boundaries from NVTX ranges";
    case model::StepSource::kCollectives:
      return "boundaries from the collective sequence";
    case model::StepSource::kKernels:
      return "boundaries from the kernel sequence";
    default:
      return "boundaries from the optimizer's kernels";
  }
}

// "host-bound 48.0 ms, input 12.2 ms", largest first is not needed: there are seven.
std::string IdleWords(const StepsReport& s) {
  std::vector<std::string> parts;
  const auto part = [&](const char* name, const model::Summary& time) {
    // Parts that would be shown as nothing are not named.
    if (time.mean > 0.0005 * s.time_ns.mean) parts.push_back(absl::StrCat(name, " ", Duration(time.mean)));
  };
  part("host-bound", s.host_bound_ns);
  part("input", s.input_ns);
  part("sync", s.sync_ns);
  part("memory calls", s.memory_ns);
  part("pauses", s.pause_ns);
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
    std::string& part =
        parts.emplace_back(absl::StrCat(report::Word(phase.name), " ", Duration(phase.time_ns.mean)));
    if (phase.time_ns.std > 0.5) absl::StrAppend(&part, " +-", Duration(phase.time_ns.std));
    const double idle = phase.idle_ns.mean / phase.time_ns.mean;
    if (idle >= kLeastIdle && idle < 1) absl::StrAppend(&part, " (", Percent(idle), " idle)");
  }
  return absl::StrCat("phases (", s.phases.empty() ? "" : report::Word(s.phases.front().source),
                      "): ", absl::StrJoin(parts, ", "));
}

std::string Note(const StepsReport& s, bool stands_still) {
  std::string note =
      absl::StrCat(Count(s.count), s.count == 1 ? " step" : " steps", stands_still ? " before the hang" : "");
  if (s.warmup_count > 0)
    absl::StrAppend(&note, ", ", Count(s.warmup_count),
                    s.warmup_count == 1 ? " warm-up step" : " warm-up steps", " excluded");
  absl::StrAppend(&note, ", ", SourceWords(s.source), absl::StrFormat(", confidence %.2f", s.confidence));
  if (s.incomplete_count > 0) {
    const bool one = s.incomplete_count == 1;
    absl::StrAppend(&note, ", records missing in ", Count(s.incomplete_count), one ? " step" : " steps",
                    " (over all ranks), which ", one ? "is" : "are", s.estimated ? " estimated" : " excluded",
                    ": mean +- ", Duration(s.errors->total_ns));
  }
  if (s.overlap_efficiency.has_value()) {
    absl::StrAppend(&note, "; communication ", Duration(s.comm_ns.mean), ", ", Percent(*s.hidden_comm_share),
                    " of it hidden, overlap efficiency ", Percent(*s.overlap_efficiency), " (ideal 100 %)");
  }
  return absl::StrCat(note, "; ", PhaseWords(s));
}

}  // namespace

Table StepsTable(const analysis::Report& report) {
  Table t{.id = kStepsTable,
          .title = "Steps",
          .columns = {"step", "mean", "p50", "p95", "p99", "max", "of step", "std", "of ranks"},
          .left = {true, false, false, false, false, false, false, false, false},
          .rows = {},
          .note = ""};
  if (!report.steps.has_value()) return t;
  const StepsReport& s = *report.steps;
  const auto row = [&](const char* name, const model::Summary& time, const std::optional<double>& between) {
    t.rows.push_back({name, Duration(time.mean), Duration(time.p50), Duration(time.p95), Duration(time.p99),
                      Duration(static_cast<double>(time.max)),
                      s.time_ns.mean > 0 ? Percent(time.mean / s.time_ns.mean) : "-", Duration(time.std),
                      between.has_value() ? Duration(*between) : "-"});
  };
  row("total", s.time_ns, report.between_ranks.total_ns);
  row("  compute", s.compute_ns, report.between_ranks.compute_ns);
  row("  exposed comm", s.exposed_comm_ns, report.between_ranks.exposed_comm_ns);
  row("  copy", s.copy_ns, report.between_ranks.copy_ns);
  row("  idle", s.idle_ns, report.between_ranks.idle_ns);
  const std::string idle = IdleWords(s);
  std::string stages;
  if (const auto& pipeline = report.communication.pipeline; pipeline.has_value()) {
    stages = absl::StrCat("waiting for other stages ", Duration(pipeline->bubble * s.time_ns.mean),
                          " (the pipeline's bubble, part of exposed comm and idle); ");
  }
  t.note = absl::StrCat(stages, idle.empty() ? "" : absl::StrCat("idle: ", idle, "; "),
                        "std: over all steps; of ranks: over the ranks' means; ",
                        Note(s, analysis::StandstillNs(report.hangs).has_value()));
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
      *u.peak_flops / kTera, report::Word(u.type), report.conditions.devices.front().name, u.peak_source);
  if (u.hfu.has_value()) {
    absl::StrAppend(
        &line, *u.hfu > *u.mfu ? "; HFU, with recomputed activations, " : "; HFU, without recomputation, ",
        Percent(*u.hfu));
  }
  return line + ".";
}

}  // namespace gpuprobe::render
