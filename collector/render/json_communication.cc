#include "collector/render/json_communication.h"

#include <algorithm>

#include "collector/analysis/link_model.h"
#include "collector/render/json_values.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

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

Json LinksJson(const std::vector<analysis::LinkModel>& all) {
  Json models = Json::array();
  for (const analysis::LinkModel& m : all) {
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
  return models;
}

Json ForwardJson(const std::vector<analysis::ForwardCommunication>& all) {
  Json out = Json::array();
  for (const analysis::ForwardCommunication& f : all) {
    out.push_back({{"op", f.op},
                   {"comm_ranks", f.comm_ranks},
                   {"calls_per_step", f.calls_per_step},
                   {"time_ns_per_step", f.time_ns_per_step},
                   {"exposed_ns_per_step", f.exposed_ns_per_step},
                   {"share_of_forward", f.share_of_forward}});
  }
  return out;
}

Json BucketsJson(const std::optional<analysis::Buckets>& buckets) {
  if (!buckets.has_value()) return nullptr;
  Json sizes = Json::array();
  for (const analysis::Buckets::Size& s : buckets->sizes) {
    sizes.push_back({{"size_bytes", s.size_bytes},
                     {"calls_per_step", s.calls_per_step},
                     {"transfer_ns", s.transfer_ns},
                     {"transfer_busbw_gbytes_per_s", OrNull(s.busbw)}});
  }
  return {{"op", buckets->op},
          {"comm", buckets->comm},
          {"calls_per_step", buckets->calls_per_step},
          {"bytes_per_step", buckets->bytes_per_step},
          {"transfer_ns_per_step", buckets->transfer_ns_per_step},
          {"sizes", sizes},
          {"order", BucketOrder(*buckets)}};
}

Json PipelineJson(const std::optional<analysis::Pipeline>& pipeline) {
  if (!pipeline.has_value()) return nullptr;
  return {{"stages", pipeline->stages},
          {"microbatches", pipeline->microbatches},
          {"bubble", pipeline->bubble},
          {"least_bubble", pipeline->least_bubble},
          {"collective_ns_per_step", pipeline->collective_ns},
          {"exposed_collective_ns_per_step", pipeline->exposed_collective_ns}};
}

Json ExposedJson(const std::vector<analysis::ExposedCalls>& all) {
  Json out = Json::array();
  for (const analysis::ExposedCalls& calls : all) {
    out.push_back({{"op", calls.op},
                   {"comm_ranks", calls.comm_ranks},
                   {"in_forward", calls.in_forward},
                   {"calls_per_step", calls.calls_per_step},
                   {"time_ns_per_step", calls.time_ns_per_step},
                   {"exposed_ns_per_step", calls.exposed_ns_per_step}});
  }
  return out;
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

// The least and the most ranks per host among those that report.
Json PerHost(const analysis::CommunicatorReport& c) {
  if (c.ranks_of_host.empty()) return nullptr;
  const auto [least, most] =
      std::minmax_element(c.ranks_of_host.begin(), c.ranks_of_host.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  return {least->second, most->second};
}

}  // namespace

Json CommunicationJson(const analysis::CommunicationReport& c,
                       const std::vector<analysis::LinkModel>& links) {
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
          {"buckets", BucketsJson(c.buckets)},
          {"bucket_advice", BucketAdviceJson(c.bucket_advice)},
          {"forward", ForwardJson(c.forward)},
          {"exposed", ExposedJson(c.exposed)},
          {"pipeline", PipelineJson(c.pipeline)},
          {"alpha_beta", LinksJson(links)}};
}

Json ClockJson(const analysis::ClockReport& clock) {
  Json ranks = Json::array();
  for (const analysis::ClockOffset& c : clock.ranks) {
    ranks.push_back({{"rank", OrNull(c.rank)},
                     {"host", c.host},
                     {"offset_ns", c.offset_ns},
                     {"drift_ppm", OrNull(c.drift_ppm)},
                     {"residual_ns", c.residual_ns},
                     {"stepped_ns", c.stepped_ns},
                     {"samples", c.samples}});
  }
  return {{"reference", TextOrNull(clock.reference)}, {"ranks", ranks}};
}

Json CommunicatorsJson(const std::vector<analysis::CommunicatorReport>& all) {
  Json out = Json::array();
  for (const analysis::CommunicatorReport& c : all) {
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

}  // namespace gpuprobe::render
