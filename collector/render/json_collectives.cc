#include "collector/render/json_collectives.h"

#include "collector/render/json_values.h"
#include "collector/render/steps.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

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
          {"time_ns", StatisticsJson(c.time_ns)},
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

}  // namespace

Json CollectivesJson(const std::vector<analysis::CollectiveReport>& collectives) {
  Json out = Json::array();
  for (const analysis::CollectiveReport& c : collectives) out.push_back(CollectiveOf(c));
  return out;
}

}  // namespace gpuprobe::render
