#include "collector/render/live_json.h"

#include "collector/render/json_values.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

Json StepJson(const std::optional<analysis::LiveStep>& step) {
  if (!step.has_value()) return nullptr;
  return {{"total_ns", step->total_ns},
          {"compute_ns", step->compute_ns},
          {"exposed_comm_ns", step->exposed_comm_ns},
          {"copy_ns", step->copy_ns},
          {"idle_ns", step->idle_ns}};
}

Json RankJson(const analysis::LiveRank& rank) {
  return {{"rank", OrNull(rank.rank)},   {"label", rank.label},
          {"host", rank.host},           {"steps", rank.steps},
          {"step", StepJson(rank.step)}, {"late_ns", rank.late_ns},
          {"waited_ns", rank.waited_ns}, {"memory_bytes", rank.memory_bytes},
          {"trouble", rank.trouble}};
}

}  // namespace

std::string LiveJson(const analysis::LiveStatus& status) {
  Json ranks = Json::array();
  for (const analysis::LiveRank& rank : status.ranks) ranks.push_back(RankJson(rank));
  const Json json = {{"steps", status.steps},
                     {"step", StepJson(status.step)},
                     {"world_size", status.world_size},
                     {"hosts", status.hosts},
                     {"devices", status.devices},
                     {"cuda", status.cuda},
                     {"nccl", status.nccl},
                     {"wait_share", status.wait_share},
                     {"slowest", OrNull(status.slowest)},
                     {"memory_bytes", status.memory_bytes},
                     {"records", status.records},
                     {"lost", status.lost},
                     {"idle_ns", status.idle_ns},
                     {"hangs", status.hangs},
                     {"ranks", ranks}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gpuprobe::render
