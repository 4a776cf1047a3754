#include "collector/render/json_ranks.h"

#include <algorithm>

#include "collector/analysis/link_model.h"
#include "collector/render/json_values.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

Json ShapeJson(const analysis::CallShape& shape) {
  return {{"op", shape.op},
          {"count", shape.count},
          {"datatype", TextOrNull(shape.datatype)},
          {"bytes", shape.bytes},
          {"root", shape.root >= 0 ? Json(shape.root) : Json(nullptr)}};
}

Json HangRankJson(const analysis::HangRank& r) {
  Json last = nullptr;
  if (!r.last_op.empty()) {
    last = {{"op", r.last_op},
            {"comm", r.last_comm},
            {"seq", r.last_seq},
            {"issued_ago_ns", OrNull(r.last_issue_ago_ns)},
            {"done_ago_ns", OrNull(r.last_done_ago_ns)},
            {"captured", r.last_captured}};
  }
  Json replays = nullptr;
  if (r.replays.has_value()) {
    replays = {{"launches", r.replays->launches},
               {"last_launch_ago_ns", OrNull(r.replays->last_launch_ago_ns)}};
  }
  return {{"rank", OrNull(r.rank)},
          {"host", r.host},
          {"pid", r.pid},
          {"state", analysis::HangStateName(r.state)},
          {"issued", r.shape.has_value() ? ShapeJson(*r.shape) : Json(nullptr)},
          {"ended", r.ended},
          {"last_call", last},
          {"launches_since", r.launches_since},
          {"last_launch_ago_ns", OrNull(r.last_launch_ago_ns)},
          {"silent_ns", OrNull(r.silent_ns)},
          {"blocked_in", TextOrNull(r.blocked_in)},
          {"open_range", TextOrNull(r.open_range)},
          {"replays", replays},
          {"halt", HaltJson(r.halt)},
          {"host_load", HostLoadJson(r.load)}};
}

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

Json BucketOrder(const analysis::Buckets& buckets) {
  Json order = Json::array();
  for (const analysis::CallTiming& call : buckets.order) {
    order.push_back({{"place", call.place},
                     {"size_bytes", call.size_bytes},
                     {"after_backward_ns", OrNull(call.after_backward_ns)},
                     {"time_ns", call.time_ns},
                     {"hidden_share", OrNull(call.hidden_share)}});
  }
  return order;
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

Json StragglersJson(const analysis::Report& report) {
  Json out = Json::array();
  for (const analysis::Straggler& s : report.stragglers) {
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

Json LongStepsJson(const analysis::Report& report) {
  if (!report.long_steps.has_value()) return nullptr;
  const analysis::LongStepsReport& all = *report.long_steps;
  Json steps = Json::array();
  for (const auto& s : all.steps) {
    steps.push_back({{"step", s.step},
                     {"time_ns", s.time_ns},
                     {"last_rank", OrNull(s.last_rank)},
                     {"late_by_ns", s.late_by_ns}});
  }
  return {{"compared_steps", all.compared_steps},
          {"usual_ns", all.usual_ns},
          {"cost_ns_per_step", all.cost_ns},
          {"steps", steps}};
}

Json ClockJson(const analysis::Report& report) {
  Json ranks = Json::array();
  for (const analysis::ClockOffset& c : report.clock.ranks) {
    ranks.push_back({{"rank", OrNull(c.rank)},
                     {"host", c.host},
                     {"offset_ns", c.offset_ns},
                     {"drift_ppm", OrNull(c.drift_ppm)},
                     {"residual_ns", c.residual_ns},
                     {"stepped_ns", c.stepped_ns},
                     {"samples", c.samples}});
  }
  return {{"reference", TextOrNull(report.clock.reference)}, {"ranks", ranks}};
}

Json NetworkJson(const std::optional<analysis::NetworkReport>& network) {
  if (!network.has_value()) return nullptr;
  Json slow = nullptr;
  if (network->slow.has_value()) {
    const analysis::NetworkReport::Slow& s = *network->slow;
    const bool hosts = !s.hosts.empty();
    slow = {{"op", s.op},
            {"size_bytes", s.size_bytes},
            {"comm_ranks", s.comm_ranks},
            {"usual_ns", s.usual_ns},
            {"slow_ns", s.slow_ns},
            {"since_step", s.since_step.has_value() ? Json(*s.since_step) : Json(nullptr)},
            {"elsewhere_ns", hosts ? Json(s.elsewhere_ns) : Json(nullptr)},
            {"elsewhere_slow_ns", hosts ? Json(s.elsewhere_slow_ns) : Json(nullptr)},
            {"hosts", s.hosts}};
  }
  return {{"hosts", network->hosts},
          {"gbytes_per_s", OrNull(network->gbytes_per_s)},
          {"reference_gbytes_per_s", OrNull(network->reference_gbytes_per_s)},
          {"slow", slow}};
}

Json BucketAdviceJson(const std::optional<analysis::BucketAdvice>& advice) {
  if (!advice.has_value()) return nullptr;
  return {
      {"bucket_bytes", advice->bucket_bytes}, {"exposed_ns", advice->exposed_ns}, {"fitted", advice->fitted}};
}

Json CommunicationJson(const analysis::Report& report) {
  const analysis::CommunicationReport& c = report.communication;
  Json models = Json::array();
  for (const analysis::LinkModel& m : report.link_models) {
    Json sizes = Json::array();
    const analysis::SizesSeen seen = analysis::SizesSeenBy(m);
    for (const analysis::LinkModel::Size& s : m.sizes) {
      sizes.push_back({{"size_bytes", s.size_bytes},
                       {"calls", s.calls},
                       {"measured_ns", s.measured_ns},
                       {"predicted_ns", s.predicted_ns},
                       {"tree_ns", OrNull(s.tree_ns)}});
    }
    models.push_back({{"op", m.op},
                      {"comm", m.comm},
                      {"comm_ranks", m.comm_ranks},
                      {"alpha_ns", m.alpha_ns},
                      {"alpha_error_ns", m.alpha_error_ns},
                      {"beta_gbytes_per_s", m.beta_gbytes_per_s},
                      {"beta_error_gbytes_per_s", m.beta_error_gbytes_per_s},
                      {"r2", m.r2},
                      {"mean_relative_error", m.mean_relative_error},
                      {"worst_relative_error", m.worst_relative_error},
                      {"hop_alpha_ns", OrNull(m.hop_alpha_ns)},
                      {"hop_alpha_error_ns", OrNull(m.hop_alpha_error_ns)},
                      {"half_bandwidth_bytes", OrNull(seen.half_bandwidth_bytes)},
                      {"latency_seen", seen.latency},
                      {"bandwidth_seen", seen.bandwidth},
                      {"sizes", sizes}});
  }
  Json forward = Json::array();
  for (const analysis::ForwardCommunication& f : c.forward) {
    forward.push_back({{"op", f.op},
                       {"comm_ranks", f.comm_ranks},
                       {"calls_per_step", f.calls_per_step},
                       {"time_ns_per_step", f.time_ns_per_step},
                       {"exposed_ns_per_step", f.exposed_ns_per_step},
                       {"share_of_forward", f.share_of_forward}});
  }
  Json buckets = nullptr;
  if (c.buckets.has_value()) {
    Json sizes = Json::array();
    for (const analysis::Buckets::Size& s : c.buckets->sizes) {
      sizes.push_back({{"size_bytes", s.size_bytes},
                       {"calls_per_step", s.calls_per_step},
                       {"transfer_ns", s.transfer_ns},
                       {"transfer_busbw_gbytes_per_s", OrNull(s.busbw)}});
    }
    buckets = {{"op", c.buckets->op},
               {"comm", c.buckets->comm},
               {"calls_per_step", c.buckets->calls_per_step},
               {"bytes_per_step", c.buckets->bytes_per_step},
               {"transfer_ns_per_step", c.buckets->transfer_ns_per_step},
               {"sizes", sizes},
               {"order", BucketOrder(*c.buckets)}};
  }
  Json pipeline = nullptr;
  if (c.pipeline.has_value()) {
    pipeline = {{"stages", c.pipeline->stages},
                {"microbatches", c.pipeline->microbatches},
                {"bubble", c.pipeline->bubble},
                {"least_bubble", c.pipeline->least_bubble},
                {"collective_ns_per_step", c.pipeline->collective_ns},
                {"exposed_collective_ns_per_step", c.pipeline->exposed_collective_ns}};
  }
  Json exposed = Json::array();
  for (const analysis::ExposedCalls& calls : c.exposed) {
    exposed.push_back({{"op", calls.op},
                       {"comm_ranks", calls.comm_ranks},
                       {"in_forward", calls.in_forward},
                       {"calls_per_step", calls.calls_per_step},
                       {"time_ns_per_step", calls.time_ns_per_step},
                       {"exposed_ns_per_step", calls.exposed_ns_per_step}});
  }
  const bool steps = c.step_ns > 0;
  return {{"transfer_ns_per_step", steps ? Json(c.transfer_ns) : Json(nullptr)},
          {"exposed_transfer_ns_per_step", steps ? Json(c.exposed_transfer_ns) : Json(nullptr)},
          {"waited_ns_per_step", steps ? Json(c.waited_ns) : Json(nullptr)},
          {"exposed_wait_ns_per_step", steps ? Json(c.exposed_wait_ns()) : Json(nullptr)},
          {"link_peak_gbytes_per_s", OrNull(c.link_peak)},
          {"link_peak_source", TextOrNull(c.link_peak_source)},
          {"network", NetworkJson(c.network)},
          {"unheard_share", c.unheard_share},
          {"pattern", c.pattern},
          {"bytes_share", c.bytes_share},
          {"buckets", buckets},
          {"bucket_advice", BucketAdviceJson(c.bucket_advice)},
          {"forward", forward},
          {"exposed", exposed},
          {"pipeline", pipeline},
          {"alpha_beta", models}};
}

// The least and the most ranks per host among those that report.
Json PerHost(const analysis::CommunicatorReport& c) {
  if (c.ranks_of_host.empty()) return nullptr;
  const auto [least, most] =
      std::minmax_element(c.ranks_of_host.begin(), c.ranks_of_host.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  return {least->second, most->second};
}

Json CommunicatorsJson(const analysis::Report& report) {
  Json out = Json::array();
  for (const analysis::CommunicatorReport& c : report.communicators) {
    Json operations = Json::object();
    uint64_t calls = 0;
    uint64_t bytes = 0;
    for (const auto& [op, sum] : c.operations) {
      operations[op] = {{"calls", sum.calls}, {"bytes", sum.bytes}};
      calls += sum.calls;
      bytes += sum.bytes;
    }
    out.push_back({{"comm", c.comm},
                   {"name", TextOrNull(c.name)},
                   {"ranks", OrNull(c.ranks)},
                   {"ranks_heard", c.ranks_heard},
                   {"members", c.members},
                   {"hosts", c.ranks_of_host.size()},
                   {"ranks_per_host", PerHost(c)},
                   {"ran_as", TextOrNull(c.ran_as)},
                   {"parent", TextOrNull(c.parent)},
                   {"made_by", TextOrNull(c.made_by)},
                   {"made_ns", OrNull(c.made_ns)},
                   {"states", c.states},
                   {"calls", calls},
                   {"bytes", bytes},
                   {"operations", operations}});
  }
  return out;
}

namespace {

Json HangJson(const analysis::Hang& hang) {
  Json ranks = Json::array();
  for (const analysis::HangRank& r : hang.ranks) ranks.push_back(HangRankJson(r));
  Json json = {{"kind", analysis::HangKindName(hang.kind)},
               {"comm", hang.comm},
               {"comm_name", TextOrNull(hang.comm_name)},
               {"comm_ranks", hang.comm_ranks},
               {"seq", hang.seq}};
  json.update(ShapeJson(hang.shape));
  json["replay"] = nullptr;
  if (const auto& r = hang.replay; r.has_value()) {
    json["replay"] = {{"number", r->number},
                      {"collectives", r->collectives},
                      {"ended", r->ended},
                      {"communicators", r->communicators}};
  }
  json["transfer"] = nullptr;
  if (const auto& t = hang.transfer; t.has_value()) {
    json["transfer"] = {{"rank", OrNull(t->rank)},
                        {"peer", OrNull(t->peer)},
                        {"counterpart", t->counterpart},
                        {"others_waiting", t->others_waiting}};
  }
  json.update({{"since_ns", hang.since_ns},
               {"waiting_ns", hang.waiting_ns},
               {"over", hang.over},
               {"issued", hang.issued},
               {"not_heard", hang.not_heard},
               {"culprit_known", hang.culprit_known},
               {"ranks", ranks},
               {"ranks_left_out", hang.ranks_left_out},
               {"mismatches_after", hang.mismatches_after},
               {"earlier_work_unfinished", hang.earlier_work}});
  return json;
}

}  // namespace

Json HangsJson(const analysis::Report& report) {
  Json out = Json::array();
  for (const analysis::Hang& hang : report.hangs) out.push_back(HangJson(hang));
  return out;
}

Json PastHangsJson(const analysis::Report& report) {
  Json out = Json::array();
  for (const analysis::PastHang& past : report.past_hangs) {
    Json json = HangJson(past.hang);
    json["over"] = true;
    json["since_ns"] = past.since_ns;
    json["until_ns"] = past.until_ns;
    out.push_back(std::move(json));
  }
  return out;
}

}  // namespace gpuprobe::render
