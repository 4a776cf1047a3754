#include "collector/render/comparison.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/units.h"
#include "collector/render/text_layout.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using analysis::Duration;
using Json = nlohmann::ordered_json;

constexpr int kComparisonSchemaVersion = 2;
constexpr size_t kMaxRows = 12;

// A change as a person reads it: a percentage, or how many times as much.
std::string Relative(double change) {
  constexpr double kTimes = 9;
  return change >= kTimes ? absl::StrFormat("%.3g x", change + 1) : absl::StrFormat("%+.1f %%", change * 100);
}

std::string Change(double difference, double base) {
  if (base <= 0) return "-";
  return Relative(difference / base);
}

std::string Interval(double low, double high) {
  if (Relative(low).back() == 'x' || Relative(high).back() == 'x')
    return absl::StrCat(Relative(low), " to ", Relative(high));
  return absl::StrFormat("%+.1f to %+.1f %%", low * 100, high * 100);
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
    if (part.significant) std::tie(row[1], row[2]) = analysis::Durations(part.a.mean, part.b.mean);
    if (part.test.has_value()) {
      const analysis::WelchResult& w = *part.test;
      const bool known = part.a.mean > 0;
      row.insert(row.end(), {Change(w.difference, part.a.mean),
                             known ? Interval(w.low / part.a.mean, w.high / part.a.mean) : "-",
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

using Side = analysis::ComparedWork::Side;

std::string Calls(const Side& side) {
  return side.calls == 0   ? "-"
         : side.calls < 10 ? absl::StrFormat("%.3g", side.calls)
                           : absl::StrFormat("%.1f", side.calls);
}

std::string Mean(const Side& side) { return side.calls == 0 ? "-" : Duration(side.mean_ns); }

std::string Wait(const Side& side) { return side.wait_ns.has_value() ? Duration(*side.wait_ns) : "-"; }

std::string ChangeOf(const analysis::ComparedWork& w) {
  return absl::StrCat(w.change_ns < 0 ? "-" : "+", Duration(std::abs(w.change_ns)));
}

std::string WhatIsCounted(const analysis::Comparison& c) {
  return c.per_step ? "of a rank and step, mean over the ranks; warm-up left out; beyond chance after Holm"
                    : "of a rank and the whole run, its start included; beyond chance after Holm";
}

// What no table holds, for it has only so many rows.
void NoteRest(size_t rows, Table& t) {
  if (rows > kMaxRows) absl::StrAppend(&t.note, "; ", rows - kMaxRows, " more with --json");
}

Table Kernels(const analysis::Comparison& c) {
  Table t{.id = "kernel",
          .title = "Changed kernels",
          .columns = {"changed kernel", c.per_step ? "calls/step A" : "calls A", "B", "call A", "B",
                      c.per_step ? "change a step" : "change in all"},
          .left = {true, false, false, false, false, false},
          .rows = {},
          .note = WhatIsCounted(c)};
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(c.kernels.size(), kMaxRows); ++i) names.push_back(c.kernels[i].name);
  names = analysis::KernelNames(names, 48);
  for (size_t i = 0; i < names.size(); ++i) {
    const analysis::ComparedWork& w = c.kernels[i];
    t.rows.push_back({names[i], Calls(w.a), Calls(w.b), Mean(w.a), Mean(w.b), ChangeOf(w)});
  }
  NoteRest(c.kernels.size(), t);
  return t;
}

Table Collectives(const analysis::Comparison& c) {
  Table t{.id = "collective",
          .title = "Changed collectives",
          .columns = {"changed collective", c.per_step ? "calls/step A" : "calls A", "B", "transfer A", "B",
                      "wait A", "B", c.per_step ? "transfers a step" : "transfers in all"},
          .left = {true, false, false, false, false, false, false, false},
          .rows = {},
          .note = absl::StrCat("transfer: without waiting for late ranks, which is beside it; ",
                               WhatIsCounted(c))};
  for (size_t i = 0; i < std::min(c.collectives.size(), kMaxRows); ++i) {
    const analysis::ComparedWork& w = c.collectives[i];
    t.rows.push_back(
        {w.name, Calls(w.a), Calls(w.b), Mean(w.a), Mean(w.b), Wait(w.a), Wait(w.b), ChangeOf(w)});
  }
  NoteRest(c.collectives.size(), t);
  return t;
}

Table Findings(const analysis::Comparison& c) {
  Table t{.id = "findings",
          .title = "Findings of one run",
          .columns = {"only in", "finding", ""},
          .left = {true, true, true},
          .rows = {},
          .note = "what only one of the runs has"};
  constexpr size_t kWidth = 72;
  for (size_t i = 0; i < std::min(c.findings.size(), kMaxRows); ++i) {
    const analysis::ComparedFinding& f = c.findings[i];
    t.rows.push_back({f.in_a ? "A" : "B", f.id, analysis::Shorten(f.statement, kWidth)});
  }
  NoteRest(c.findings.size(), t);
  return t;
}

Json SampleOf(const analysis::Sample& s) {
  return {{"steps", s.count}, {"mean_ns", s.mean}, {"std_ns", s.std}};
}

Json SideOf(const Side& side, bool waits) {
  Json json = {
      {"calls_per_step", side.calls},
      {"mean_ns", side.mean_ns},
      {"sample", {{"count", side.sample.count}, {"mean_ns", side.sample.mean}, {"std_ns", side.sample.std}}}};
  if (waits) json["wait_ns"] = side.wait_ns.has_value() ? Json(*side.wait_ns) : Json(nullptr);
  return json;
}

Json WorkOf(const std::vector<analysis::ComparedWork>& work, bool waits) {
  Json out = Json::array();
  for (const analysis::ComparedWork& w : work) {
    out.push_back({{"name", w.name},
                   {"a", SideOf(w.a, waits)},
                   {"b", SideOf(w.b, waits)},
                   {"p_value", w.p_value},
                   {"change_ns_per_step", w.change_ns}});
  }
  return out;
}

}  // namespace

std::string ComparisonText(const analysis::Comparison& c, const std::string& a, const std::string& b) {
  std::string out = absl::StrCat("gpuprobe: A is ", a, "\n          B is ", b, "\n\n");
  absl::StrAppend(&out, Wrap(" ", " ", c.verdict));
  for (const Table& table : {Findings(c), Parts(c), Kernels(c), Collectives(c)}) {
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
  Json findings = Json::array();
  for (const analysis::ComparedFinding& f : c.findings)
    findings.push_back({{"id", f.id}, {"only_in", f.in_a ? "a" : "b"}, {"statement", f.statement}});
  const Json json = {{"schema_version", kComparisonSchemaVersion},
                     {"a", a},
                     {"b", b},
                     {"verdict", c.verdict},
                     {"doubts", {{"a", c.doubts_a}, {"b", c.doubts_b}}},
                     {"findings", findings},
                     {"per_step", c.per_step},
                     {"steps", parts},
                     {"kernels", WorkOf(c.kernels, false)},
                     {"collectives", WorkOf(c.collectives, true)},
                     {"conditions", conditions}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpuprobe::render
