#include "collector/render/live_json.h"

#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using analysis::LiveRank;
using analysis::LiveStatus;
using analysis::LiveStep;
using Json = nlohmann::ordered_json;

// One list of names for both directions.
template <typename Field>
void VisitStep(Field&& field, auto& step) {
  field("total_ns", step.total_ns);
  field("compute_ns", step.compute_ns);
  field("exposed_comm_ns", step.exposed_comm_ns);
  field("copy_ns", step.copy_ns);
  field("idle_ns", step.idle_ns);
}

template <typename Field>
void VisitRank(Field&& field, auto& rank) {
  field("rank", rank.rank);
  field("label", rank.label);
  field("host", rank.host);
  field("pid", rank.pid);
  field("steps", rank.steps);
  field("step", rank.step);
  field("late_ns", rank.late_ns);
  field("waited_ns", rank.waited_ns);
  field("memory_bytes", rank.memory_bytes);
  field("blocked_in", rank.blocked_in);
  field("python", rank.python);
  field("blocked_ns", rank.blocked_ns);
  field("host_in", rank.host_in);
  field("host_in_ago_ns", rank.host_in_ago_ns);
  field("silent_ns", rank.silent_ns);
  field("range", rank.range);
  field("last_call", rank.last_call);
  field("last_call_ago_ns", rank.last_call_ago_ns);
  field("trouble", rank.trouble);
}

template <typename Field>
void VisitStatus(Field&& field, auto& status) {
  field("hangs", status.hangs);
  field("idle_ns", status.idle_ns);
  field("world_size", status.world_size);
  field("hosts", status.hosts);
  field("devices", status.devices);
  field("cuda", status.cuda);
  field("nccl", status.nccl);
  field("steps", status.steps);
  field("step", status.step);
  field("wait_share", status.wait_share);
  field("slowest", status.slowest);
  field("memory_bytes", status.memory_bytes);
  field("records", status.records);
  field("lost", status.lost);
  field("ranks", status.ranks);
}

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    out_[name] = Of(value);
  }
  Json Take() { return std::move(out_); }

  template <typename T>
  static Json Of(const T& value) {
    return value;
  }
  template <typename T>
  static Json Of(const std::optional<T>& value) {
    return value.has_value() ? Of(*value) : Json(nullptr);
  }
  static Json Of(const LiveStep& step) {
    Writer writer;
    VisitStep(writer, step);
    return writer.Take();
  }
  static Json Of(const std::vector<LiveRank>& ranks) {
    Json list = Json::array();
    for (const LiveRank& rank : ranks) {
      Writer writer;
      VisitRank(writer, rank);
      list.push_back(writer.Take());
    }
    return list;
  }

 private:
  Json out_ = Json::object();
};

class Reader {
 public:
  explicit Reader(const Json& in) : in_(in) {}

  template <typename T>
  void operator()(const char* name, T& value) const {
    const auto found = in_.find(name);
    if (found != in_.end()) Read(*found, value);
  }

 private:
  template <typename T>
  requires std::is_arithmetic_v<T>
  static void Read(const Json& json, T& value) {
    // No time or count is negative, and a double is exact for all that there are.
    if (!json.is_number()) return;
    const double number = json.get<double>();
    if (!(number >= 0) || number >= 0x1p63) return;
    if constexpr (std::is_floating_point_v<T>) {
      value = number;
    } else if (number <= static_cast<double>(std::numeric_limits<T>::max())) {
      value = static_cast<T>(number);
    }
  }
  static void Read(const Json& json, std::string& value) {
    if (json.is_string()) value = json.get<std::string>();
  }
  template <typename T>
  static void Read(const Json& json, std::optional<T>& value) {
    if (!json.is_null()) Read(json, value.emplace());
  }
  static void Read(const Json& json, LiveStep& step) {
    if (json.is_object()) VisitStep(Reader(json), step);
  }
  static void Read(const Json& json, std::vector<std::string>& list) {
    if (!json.is_array()) return;
    for (const Json& each : json) Read(each, list.emplace_back());
  }
  static void Read(const Json& json, std::vector<LiveRank>& list) {
    if (!json.is_array()) return;
    for (const Json& each : json) {
      if (each.is_object()) VisitRank(Reader(each), list.emplace_back());
    }
  }

  const Json& in_;
};

}  // namespace

std::string LiveJson(const LiveStatus& status) {
  Writer writer;
  VisitStatus(writer, status);
  // Names come from the program, in any encoding.
  return text::SafeJson(writer.Take().dump(-1, ' ', false, Json::error_handler_t::replace));
}

absl::StatusOr<LiveStatus> ParseLiveJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is not what a collector writes");
  LiveStatus status;
  VisitStatus(Reader(json), status);
  if (status.slowest.has_value() && *status.slowest >= status.ranks.size()) status.slowest.reset();
  return status;
}

}  // namespace gpuprobe::render
