#include "collector/render/summary_json.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

constexpr double kSecond = 1e9;

class Summary {
 public:
  template <typename Number>
  void Add(const std::string& name, const Number& value) {
    json_[absl::StrCat("gpuprobe/", name)] = value;
  }
  template <typename Number>
  void Add(const std::string& name, const std::optional<Number>& value) {
    if (value.has_value()) Add(name, *value);
  }
  std::string Text() const {
    return text::SafeJson(json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
  }

 private:
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

void AddSteps(const analysis::Report& report, Summary& summary) {
  if (!report.steps.has_value()) return;
  const analysis::StepsReport& steps = *report.steps;
  summary.Add("steps", steps.count);
  summary.Add("warmup_steps", steps.warmup_count);
  summary.Add("step_seconds_mean", steps.time_ns.mean / kSecond);
  summary.Add("step_seconds_std", steps.time_ns.std / kSecond);
  summary.Add("step_seconds_p50", steps.time_ns.p50 / kSecond);
  summary.Add("step_seconds_p95", steps.time_ns.p95 / kSecond);
  summary.Add("step_seconds_p99", steps.time_ns.p99 / kSecond);
  summary.Add("step_seconds_max", static_cast<double>(steps.time_ns.max) / kSecond);
  summary.Add("compute_seconds_per_step", steps.compute_ns.mean / kSecond);
  summary.Add("communication_seconds_per_step", steps.comm_ns.mean / kSecond);
  summary.Add("exposed_communication_seconds_per_step", steps.exposed_comm_ns.mean / kSecond);
  summary.Add("copy_seconds_per_step", steps.copy_ns.mean / kSecond);
  summary.Add("idle_seconds_per_step", steps.idle_ns.mean / kSecond);
  summary.Add("host_bound_seconds_per_step", steps.host_bound_ns.mean / kSecond);
  summary.Add("input_wait_seconds_per_step", steps.input_ns.mean / kSecond);
  summary.Add("sync_seconds_per_step", steps.sync_ns.mean / kSecond);
  summary.Add("memory_call_seconds_per_step", steps.memory_ns.mean / kSecond);
  summary.Add("pause_seconds_per_step", steps.pause_ns.mean / kSecond);
  summary.Add("overlap_efficiency", steps.overlap_efficiency);
  summary.Add("hidden_communication_share", steps.hidden_comm_share);
}

void AddRanks(const analysis::Report& report, Summary& summary) {
  uint64_t kernels = 0;
  uint64_t kernel_ns = 0;
  uint64_t device_peak = 0;
  uint64_t reserved_peak = 0;
  uint64_t allocated_peak = 0;
  double caused = 0;
  for (const analysis::RankReport& rank : report.ranks) {
    kernels += rank.kernel_count;
    kernel_ns += rank.kernel_total_ns;
    caused = std::max(caused, rank.caused.per_step_ns);
    for (const analysis::DeviceMemoryReport& device : rank.device_memory)
      device_peak = std::max(device_peak, device.high_water_bytes);
    for (const analysis::PytorchMemoryReport& pytorch : rank.pytorch_memory) {
      reserved_peak = std::max(reserved_peak, pytorch.peak_reserved_bytes);
      allocated_peak = std::max(allocated_peak, pytorch.peak_allocated_bytes);
    }
  }
  summary.Add("kernels", kernels);
  summary.Add("kernel_seconds", static_cast<double>(kernel_ns) / kSecond);
  summary.Add("caused_wait_seconds_per_step_max", caused / kSecond);
  summary.Add("device_memory_peak_bytes", device_peak);
  if (reserved_peak > 0) summary.Add("pytorch_reserved_peak_bytes", reserved_peak);
  if (allocated_peak > 0) summary.Add("pytorch_allocated_peak_bytes", allocated_peak);
}

}  // namespace

std::string SummaryJson(const analysis::Report& report) {
  Summary summary;
  summary.Add("duration_seconds", static_cast<double>(report.conditions.duration_ns) / kSecond);
  summary.Add("ranks", report.conditions.ranks_heard);
  if (report.conditions.world_size > 0) summary.Add("world_size", report.conditions.world_size);
  AddSteps(report, summary);
  AddRanks(report, summary);
  summary.Add("mfu", report.utilisation.mfu);
  summary.Add("hfu", report.utilisation.hfu);
  summary.Add("stragglers", report.stragglers.size());
  summary.Add("hangs", report.hangs.size());
  for (const auto& [name, severity] : {std::pair("errors", analysis::Severity::kError),
                                       std::pair("warnings", analysis::Severity::kWarning)}) {
    summary.Add(name, std::count_if(report.findings.begin(), report.findings.end(),
                                    [&, wanted = severity](const analysis::Finding& f) {
                                      return f.severity == wanted;
                                    }));
  }
  summary.Add("records", report.trust.records);
  summary.Add("records_lost", report.trust.lost_total);
  summary.Add("coverage", report.trust.coverage);
  summary.Add("overhead_share", report.trust.cost.own_fraction);
  return summary.Text();
}

}  // namespace gpuprobe::render
