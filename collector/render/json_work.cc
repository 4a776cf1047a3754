#include "collector/render/json_work.h"

#include "collector/model/process/process_model.h"
#include "collector/render/json_values.h"
#include "collector/render/steps.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

Json TrafficOf(const std::optional<analysis::OptimizerTraffic>& traffic) {
  if (!traffic.has_value()) return nullptr;
  return {{"bytes_per_step", traffic->bytes_per_step},
          {"time_ns_per_step", traffic->time_ns_per_step},
          {"gbytes_per_s", traffic->gbytes_per_s},
          {"peak_gbytes_per_s", OrNull(traffic->peak_gbytes_per_s)}};
}

Json SteadyOf(const std::optional<analysis::SteadyKernel>& steady) {
  if (!steady.has_value()) return nullptr;
  return {{"steps", steady->steps},
          {"calls_per_step", steady->calls},
          {"time_ns_per_step", steady->time_ns},
          {"std_ns", steady->std_ns}};
}

}  // namespace

Json PhasesJson(const std::vector<analysis::PhaseReport>& phases) {
  Json out = Json::array();
  for (const analysis::PhaseReport& p : phases) {
    out.push_back({{"name", p.name},
                   {"path", p.path},
                   {"depth", p.depth},
                   {"time_ns", StatisticsJson(p.gpu_ns)},
                   {"host_time_ns", StatisticsJson(p.host_ns)},
                   {"unclosed", p.unclosed}});
  }
  return out;
}

Json KernelsJson(const std::vector<analysis::KernelReport>& kernels) {
  Json out = Json::array();
  for (const analysis::KernelReport& k : kernels) {
    out.push_back({{"name", k.name},
                   {"class", k.kernel_class},
                   {"share", k.share},
                   {"time_ns", StatisticsJson(k.time_ns)},
                   {"steady", SteadyOf(k.steady)},
                   {"grid", k.geometry.grid},
                   {"block", k.geometry.block},
                   {"geometries", k.geometries}});
  }
  return out;
}

Json ComputeJson(const analysis::ComputeReport& c) {
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

Json UtilisationJson(const analysis::UtilisationReport& u) {
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

}  // namespace gpuprobe::render
