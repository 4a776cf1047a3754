#include "collector/render/json_report.h"

#include "absl/strings/str_cat.h"
#include "collector/analysis/report.h"
#include "collector/analysis/step_report.h"
#include "collector/render/json_collectives.h"
#include "collector/render/json_communication.h"
#include "collector/render/json_conditions.h"
#include "collector/render/json_hangs.h"
#include "collector/render/json_memory.h"
#include "collector/render/json_ranks.h"
#include "collector/render/json_text.h"
#include "collector/render/json_values.h"
#include "collector/render/json_work.h"
#include "collector/render/steps.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

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
            {"launch_delay_ns", StatisticsJson(r.launch_delay_ns)}}},
          {"copies", copies},
          {"memsets", {{"count", r.memset_count}, {"bytes", r.memset_bytes}, {"duration_ns", r.memset_ns}}},
          {"syncs", syncs},
          {"wait", CausedWaitJson(r.caused)},
          {"sync", {{"count", r.blocked.count}, {"blocked_ns", r.blocked.duration_ns}}},
          {"collectives", CollectivesJson(r.collectives)},
          {"memory", MemoryJson(r)},
          {"device_memory", DeviceMemoryJson(r)},
          {"out_of_memory", OutOfMemoryJson(r)},
          {"phases", PhasesJson(r.phases)},
          {"top_kernels", KernelsJson(r.top_kernels)},
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

Json SubjectOf(const analysis::FindingSubject& about) {
  return {{"ranks", about.ranks},
          {"first_step", OrNull(about.first_step)},
          {"last_step", OrNull(about.last_step)},
          {"steps", about.steps}};
}

Json FindingsOf(const std::vector<analysis::Finding>& all) {
  Json findings = Json::array();
  for (const analysis::Finding& f : all) {
    findings.push_back({{"id", f.id},
                        {"severity", SeverityName(f.severity)},
                        {"statement", f.statement},
                        {"evidence", f.evidence},
                        {"advice", f.advice},
                        {"cost_ns_per_step", OrNull(f.cost_ns_per_step)},
                        {"about", SubjectOf(f.about)}});
  }
  return findings;
}

Json ReportOf(const analysis::Report& report, Json ranks, Json ranks_in) {
  return {{"schema_version", kReportSchemaVersion},
          {"conditions", ConditionsJson(report.conditions)},
          {"trust", TrustJson(report.trust)},
          {"steps", StepsJson(report.steps)},
          {"ranks_in", std::move(ranks_in)},
          {"ranks", std::move(ranks)},
          {"collectives", CollectivesJson(report.collectives)},
          {"phases", PhasesJson(report.phases)},
          {"top_kernels", KernelsJson(report.top_kernels)},
          {"compute", ComputeJson(report.compute)},
          {"utilisation", UtilisationJson(report.utilisation)},
          {"stragglers", StragglersJson(report.stragglers)},
          {"long_steps", LongStepsJson(report.long_steps)},
          {"clock", ClockJson(report.clock)},
          {"communication", CommunicationJson(report.communication, report.link_models)},
          {"between_ranks", BetweenRanksJson(report)},
          {"communicators", CommunicatorsJson(report.communicators)},
          {"hangs", HangsJson(report.hangs)},
          {"past_hangs", PastHangsJson(report.past_hangs)},
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
