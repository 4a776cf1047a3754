#include "collector/render/comparison.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/units.h"
#include "collector/render/text_layout.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using analysis::Duration;
using Json = nlohmann::ordered_json;

constexpr int kComparisonSchemaVersion = 1;
constexpr size_t kMaxRows = 12;

std::string Change(double difference, double base) {
  if (base <= 0) return "-";
  return absl::StrFormat("%+.1f %%", difference / base * 100);
}

Table Parts(const analysis::Comparison& c) {
  Table t{.id = "parts",
          .title = "Steps",
          .columns = {"step", "A", "B", "change", "95 % interval", "p", "effect", ""},
          .left = {true, false, false, false, false, false, false, true},
          .rows = {},
          .note = ""};
  for (const analysis::ComparedPart& part : c.parts) {
    std::vector<std::string> row{part.name, Duration(part.a.mean), Duration(part.b.mean)};
    if (part.test.has_value()) {
      const analysis::WelchResult& w = *part.test;
      const bool known = part.a.mean > 0;
      row.insert(row.end(), {Change(w.difference, part.a.mean),
                             known ? absl::StrFormat("%+.1f to %+.1f %%", w.low / part.a.mean * 100,
                                                     w.high / part.a.mean * 100)
                                   : "-",
                             w.p_value < 0.001 ? "<0.001" : absl::StrFormat("%.3f", w.p_value),
                             absl::StrFormat("%.1f", w.effect_size), part.significant ? "significant" : ""});
    } else {
      row.insert(row.end(), {Change(part.b.mean - part.a.mean, part.a.mean), "-", "-", "-", "too few steps"});
    }
    t.rows.push_back(std::move(row));
  }
  if (!c.parts.empty()) {
    t.note = absl::StrCat("Welch's t-test over ", c.parts.front().a.count, " and ", c.parts.front().b.count,
                          " steps; of the parts, significance is after Holm");
  }
  return t;
}

std::string Calls(double calls) {
  return calls == 0 ? "-" : absl::StrFormat(calls < 10 ? "%.3g" : "%.1f", calls);
}

std::string Mean(double mean_ns, double calls) { return calls == 0 ? "-" : Duration(mean_ns); }

Table Work(const std::vector<analysis::ComparedWork>& work, const char* what, bool per_step) {
  const std::string calls = per_step ? "calls/step" : "calls";
  Table t{.id = what,
          .title = absl::StrCat("Changed ", what, "s"),
          .columns = {absl::StrCat("changed ", what), calls + " A", "B", "call A", "B",
                      per_step ? "change a step" : "change in all"},
          .left = {true, false, false, false, false, false},
          .rows = {},
          .note = ""};
  for (const analysis::ComparedWork& w : work) {
    if (t.rows.size() == kMaxRows) {
      t.note = absl::StrCat(work.size() - kMaxRows, " more with --json");
      break;
    }
    t.rows.push_back(
        {analysis::KernelName(w.name, 48), Calls(w.calls_per_step_a), Calls(w.calls_per_step_b),
         Mean(w.mean_ns_a, w.calls_per_step_a), Mean(w.mean_ns_b, w.calls_per_step_b),
         absl::StrCat(w.change_ns_per_step < 0 ? "-" : "+", Duration(std::abs(w.change_ns_per_step)))});
  }
  return t;
}

Json SampleOf(const analysis::Sample& s) {
  return {{"steps", s.count}, {"mean_ns", s.mean}, {"std_ns", s.std}};
}

Json WorkOf(const std::vector<analysis::ComparedWork>& work) {
  Json out = Json::array();
  for (const analysis::ComparedWork& w : work) {
    out.push_back({{"name", w.name},
                   {"calls_per_step", {{"a", w.calls_per_step_a}, {"b", w.calls_per_step_b}}},
                   {"mean_ns", {{"a", w.mean_ns_a}, {"b", w.mean_ns_b}}},
                   {"change_ns_per_step", w.change_ns_per_step}});
  }
  return out;
}

}  // namespace

std::string ComparisonText(const analysis::Comparison& c, const std::string& a, const std::string& b) {
  std::string out = absl::StrCat("gpuprobe: A is ", a, "\n          B is ", b, "\n\n");
  absl::StrAppend(&out, Wrap(" ", " ", c.verdict));
  for (const Table& table :
       {Parts(c), Work(c.kernels, "kernel", c.per_step), Work(c.collectives, "collective", c.per_step)}) {
    if (!table.rows.empty()) absl::StrAppend(&out, "\n", Lay(table));
  }
  if (!c.conditions.empty()) {
    Table t{.id = "conditions",
            .title = "Conditions",
            .columns = {"differs", "A", "B"},
            .left = {true, true, true},
            .rows = {},
            .note = ""};
    constexpr size_t kWidth = 48;
    for (const analysis::ComparedCondition& condition : c.conditions) {
      t.rows.push_back(
          {condition.what, analysis::Shorten(condition.a, kWidth), analysis::Shorten(condition.b, kWidth)});
    }
    absl::StrAppend(&out, "\n", Lay(t));
  }
  return out;
}

std::string ComparisonJson(const analysis::Comparison& c, const std::string& a, const std::string& b) {
  Json parts = Json::array();
  for (const analysis::ComparedPart& part : c.parts) {
    Json test = nullptr;
    if (part.test.has_value()) {
      const analysis::WelchResult& w = *part.test;
      test = {{"difference_ns", w.difference}, {"low_ns", w.low},      {"high_ns", w.high},
              {"p_value", w.p_value},          {"degrees", w.degrees}, {"effect_size", w.effect_size}};
    }
    parts.push_back({{"name", part.name},
                     {"a", SampleOf(part.a)},
                     {"b", SampleOf(part.b)},
                     {"test", test},
                     {"significant", part.significant}});
  }
  Json conditions = Json::array();
  for (const analysis::ComparedCondition& condition : c.conditions)
    conditions.push_back({{"what", condition.what}, {"a", condition.a}, {"b", condition.b}});
  const Json json = {{"schema_version", kComparisonSchemaVersion},
                     {"a", a},
                     {"b", b},
                     {"verdict", c.verdict},
                     {"per_step", c.per_step},
                     {"steps", parts},
                     {"kernels", WorkOf(c.kernels)},
                     {"collectives", WorkOf(c.collectives)},
                     {"conditions", conditions}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpuprobe::render
