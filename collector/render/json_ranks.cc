#include "collector/render/json_ranks.h"

#include "collector/render/json_values.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

const char* CauseName(analysis::Straggler::Cause cause) {
  using Cause = analysis::Straggler::Cause;
  switch (cause) {
    case Cause::kSlowKernels:
      return "slow_kernels";
    case Cause::kMoreWork:
      return "more_work";
    case Cause::kLateLaunch:
      return "late_launch";
    case Cause::kLateInput:
      return "late_input";
    case Cause::kSlowCopies:
      return "slow_copies";
    default:
      return "unknown";
  }
}

}  // namespace

Json StopsJson(const std::vector<analysis::Stop>& stops) {
  Json out = Json::array();
  for (const analysis::Stop& stop : stops) {
    Json entry = HaltJson(stop.halt);
    entry["until_ns"] = stop.until_ns;
    out.push_back(std::move(entry));
  }
  return out;
}

Json HaltJson(const std::optional<analysis::Halt>& halt) {
  if (!halt.has_value()) return nullptr;
  return {{"kind", analysis::HaltName(halt->kind)},
          {"since_ns", halt->since_ns},
          {"signal", halt->signal.has_value() ? Json(analysis::SignalName(*halt->signal)) : Json(nullptr)},
          {"exit_code", OrNull(halt->exit_code)},
          {"out_of_memory", halt->out_of_memory},
          {"tracer", TextOrNull(halt->tracer)}};
}

Json HostLoadJson(const analysis::HostLoad& load) {
  if (load.observed_s <= 0) return nullptr;
  return {{"observed_s", load.observed_s},
          {"cpus", load.cpus},
          {"waits_for_cpu", load.waits_for_cpu},
          {"throttled", load.throttled},
          {"quota_cpus", load.quota_cpus > 0 ? Json(load.quota_cpus) : Json(nullptr)},
          {"major_faults_per_s", load.major_faults_per_s},
          {"memory_stall", load.memory_stall},
          {"swapped_bytes", load.swapped_bytes},
          {"uninterruptible", load.uninterruptible},
          {"waits_for", TextOrNull(load.waits_for)},
          {"wait_channel", TextOrNull(load.wait_channel)}};
}

Json CausedWaitJson(const analysis::CausedWait& caused) {
  Json pairs = nullptr;
  if (caused.pairs > 0) {
    pairs = {{"compared", caused.pairs},
             {"caused_ns", caused.pair_total_ns},
             {"caused_per_step_ns", caused.steps > 0 ? Json(caused.pair_per_step_ns) : Json(nullptr)},
             {"waited_ns", caused.pair_waited_ns}};
  }
  return {{"caused_ns", caused.total_ns},
          {"caused_mean_ns", caused.mean_ns},
          {"caused_per_step_ns", caused.steps > 0 ? Json(caused.per_step_ns) : Json(nullptr)},
          {"caused_per_step_error_ns", OrNull(caused.per_step_error_ns)},
          {"compared_share", caused.compared_share},
          {"estimated_share", caused.estimated_share},
          {"pairs", pairs},
          {"waited_ns", caused.waited_ns},
          {"last_arrivals", caused.last_arrivals},
          {"steps", caused.steps},
          {"steps_blamed", caused.steps_blamed},
          {"first_blamed_step", caused.steps_blamed > 0 ? Json(caused.first_blamed_step) : Json(nullptr)},
          {"last_blamed_step", caused.steps_blamed > 0 ? Json(caused.last_blamed_step) : Json(nullptr)}};
}

Json StragglersJson(const std::vector<analysis::Straggler>& stragglers) {
  Json out = Json::array();
  for (const analysis::Straggler& s : stragglers) {
    const bool compared = !s.kernel.empty();
    out.push_back({{"rank", s.rank},
                   {"host", s.host},
                   {"device", OrNull(s.device)},
                   {"cause", CauseName(s.cause)},
                   {"slowdown", s.slowdown},
                   {"extra_ns", s.extra_ns},
                   {"kernel", s.kernel},
                   {"kernel_mean_ns", s.kernel_mean_ns},
                   {"kernel_elsewhere_ns", s.kernel_elsewhere_ns},
                   {"wait_ns", compared ? s.wait_ns : s.caused.waited_ns},
                   {"others_wait_mean_ns", compared ? s.others_wait_mean_ns : s.caused.mean_ns},
                   {"cause_ns_per_step", s.cause_ns_per_step},
                   {"work_ratio", s.work_ratio},
                   {"wait", CausedWaitJson(s.caused)},
                   {"lost_ns_per_step", s.lost_ns_per_step},
                   {"throughput_loss", s.throughput_loss},
                   {"persistent", s.persistent},
                   {"host_load", HostLoadJson(s.load)},
                   {"usual_host_load", HostLoadJson(s.usual_load)},
                   {"late_steps", s.compared_steps > 0 ? Json(s.late_steps) : Json(nullptr)},
                   {"compared_steps", s.compared_steps},
                   {"since_step", s.since_step.has_value() ? Json(*s.since_step) : Json(nullptr)},
                   {"stretch", s.stretch.has_value() ? Json({{"first_step", s.stretch->first},
                                                             {"last_step", s.stretch->second}})
                                                     : Json(nullptr)}});
  }
  return out;
}

Json LongStepsJson(const std::optional<analysis::LongStepsReport>& all) {
  if (!all.has_value()) return nullptr;
  Json steps = Json::array();
  for (const auto& s : all->steps) {
    steps.push_back({{"step", s.step},
                     {"time_ns", s.time_ns},
                     {"last_rank", OrNull(s.last_rank)},
                     {"late_by_ns", s.late_by_ns}});
  }
  return {{"compared_steps", all->compared_steps},
          {"usual_ns", all->usual_ns},
          {"cost_ns_per_step", all->cost_ns},
          {"steps", steps}};
}

}  // namespace gpuprobe::render
