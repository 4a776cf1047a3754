#include "collector/render/json_hangs.h"

#include "collector/render/json_ranks.h"
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

Json HangsJson(const std::vector<analysis::Hang>& hangs) {
  Json out = Json::array();
  for (const analysis::Hang& hang : hangs) out.push_back(HangJson(hang));
  return out;
}

Json PastHangsJson(const std::vector<analysis::PastHang>& hangs) {
  Json out = Json::array();
  for (const analysis::PastHang& past : hangs) {
    Json json = HangJson(past.hang);
    json["over"] = true;
    json["since_ns"] = past.since_ns;
    json["until_ns"] = past.until_ns;
    out.push_back(std::move(json));
  }
  return out;
}

}  // namespace gpuprobe::render
