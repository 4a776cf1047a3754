#include "collector/render/comparison.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "collector/analysis/units.h"
#include "collector/render/text_layout.h"
#include "collector/report/conditions.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using analysis::Duration;
using Json = nlohmann::ordered_json;

constexpr int kComparisonSchemaVersion = 3;
constexpr size_t kMostCompared = 12;
constexpr size_t kMaxMembers = 4;

// A change as a person reads it: a percentage, or a factor ("12x").
std::string Relative(double change) {
  constexpr double kTimes = 9;
  return change >= kTimes ? absl::StrFormat("%.3gx", change + 1) : absl::StrFormat("%+.1f %%", change * 100);
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

// The changes left out of a table, which has only so many rows.
void NoteRest(size_t rows, Table& t) {
  if (rows > kMostCompared) absl::StrAppend(&t.note, "; ", rows - kMostCompared, " more with --json");
}

std::string Chance(double p) { return p < 0.001 ? "<0.001" : absl::StrFormat("%.3f", p); }

// The basis of the numbers.
std::string TestNote(const analysis::Comparison& c) {
  const analysis::ComparedPart& total = c.parts.front();
  std::string note =
      c.paired ? absl::StrCat("paired t-test over ", std::min(total.a.count, total.b.count),
                              " pairs of steps with the same number (their lengths are correlated)")
               : absl::StrCat("Welch's t-test over ", total.a.count, " and ", total.b.count, " steps");
  if (c.block_steps > 1) absl::StrAppend(&note, " in blocks of ", c.block_steps);
  absl::StrAppendFormat(&note,
                        "; p adjusted for all %d comparisons (Holm, half of the weight on step time; 5 %% "
                        "chance of any false positive)",
                        c.comparisons);
  return note;
}

Table Parts(const analysis::Comparison& c) {
  Table t{.id = "parts",
          .title = "Steps",
          .columns = {"step", "A", "B", "change", "95 % interval", "p adjusted", "effect", ""},
          .left = {true, false, false, false, false, false, false, true},
          .rows = {},
          .note = ""};
  for (const analysis::ComparedPart& part : c.parts) {
    std::vector<std::string> row{analysis::PartName(part.part), Duration(part.a.mean), Duration(part.b.mean)};
    if (part.significant) std::tie(row[1], row[2]) = analysis::Durations(part.a.mean, part.b.mean);
    if (part.test.has_value()) {
      const analysis::WelchResult& w = *part.test;
      const bool known = part.a.mean > 0;
      row.insert(row.end(),
                 {Change(w.difference, part.a.mean),
                  known ? Interval(w.low / part.a.mean, w.high / part.a.mean) : "-", Chance(part.adjusted_p),
                  absl::StrFormat("%.1f", w.effect_size), part.significant ? "significant" : ""});
    } else {
      row.insert(row.end(), {Change(part.b.mean - part.a.mean, part.a.mean), "-", "-", "-", "too few steps"});
    }
    t.rows.push_back(std::move(row));
  }
  if (!c.parts.empty() && c.parts.front().test.has_value()) {
    t.note = absl::StrCat("each step averaged over the ranks; ", TestNote(c));
  }
  return t;
}

Table Ranks(const analysis::Comparison& c) {
  Table t{.id = "ranks",
          .title = "Changed ranks",
          .columns = {"changed rank", "part", "A", "B", "change", "95 % interval", "p adjusted"},
          .left = {false, true, false, false, false, false, false},
          .rows = {},
          .note = "per step; significant after Holm's adjustment"};
  for (size_t i = 0; i < std::min(c.ranks.size(), kMostCompared); ++i) {
    const analysis::ComparedRank& r = c.ranks[i];
    const auto [before, after] = analysis::Durations(r.a.mean, r.b.mean);
    const bool known = r.a.mean > 0;
    t.rows.push_back({absl::StrCat(r.rank), analysis::PartName(r.part), before, after,
                      Change(r.test->difference, r.a.mean),
                      known ? Interval(r.test->low / r.a.mean, r.test->high / r.a.mean) : "-",
                      Chance(r.adjusted_p)});
  }
  NoteRest(c.ranks.size(), t);
  return t;
}

using analysis::ComparedWork;
using Side = ComparedWork::Side;

// As few as show the number within half a percent.
int DecimalsOf(double calls) {
  constexpr int kMost = 4;
  for (int decimals = 0; decimals < kMost; ++decimals) {
    const double scaled = calls * std::pow(10, decimals);
    if (std::abs(scaled - std::round(scaled)) < 0.005 * std::max(scaled, 1.0) &&
        (calls == 0 || scaled >= 0.5))
      return decimals;
  }
  return kMost;
}

// Both with the decimals of the one that needs more.
std::pair<std::string, std::string> Calls(const ComparedWork& w) {
  const int decimals = std::max(DecimalsOf(w.a.calls), DecimalsOf(w.b.calls));
  const auto text = [decimals](double calls) {
    return calls == 0 ? std::string("-") : absl::StrFormat("%.*f", decimals, calls);
  };
  return {text(w.a.calls), text(w.b.calls)};
}

std::pair<std::string, std::string> Times(std::optional<double> a, std::optional<double> b) {
  if (a.has_value() && b.has_value()) return analysis::Durations(*a, *b);
  return {a.has_value() ? Duration(*a) : "-", b.has_value() ? Duration(*b) : "-"};
}

std::optional<double> Mean(const Side& side) {
  return side.calls == 0 ? std::nullopt : std::optional<double>(side.mean_ns);
}

std::string ChangeOf(const analysis::ComparedWork& w) {
  return absl::StrCat(w.change_ns < 0 ? "-" : "+", Duration(std::abs(w.change_ns)));
}

std::string WhatIsCounted(const analysis::Comparison& c) {
  return c.per_step ? "per rank and step, averaged over the ranks; warm-up excluded; significant after "
                      "Holm's adjustment"
                    : "per rank over the whole run, including startup; significant after Holm's adjustment";
}

Table Kernels(const analysis::Comparison& c) {
  Table t{.id = "kernel",
          .title = "Changed kernels",
          .columns = {"changed kernel", c.per_step ? "calls/step A" : "calls A", "B", "call A", "B",
                      c.per_step ? "change per step" : "total change"},
          .left = {true, false, false, false, false, false},
          .rows = {},
          .note = WhatIsCounted(c)};
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(c.kernels.size(), kMostCompared); ++i) names.push_back(c.kernels[i].name);
  names = analysis::KernelNames(names, 48);
  for (size_t i = 0; i < names.size(); ++i) {
    const analysis::ComparedWork& w = c.kernels[i];
    const auto [calls_a, calls_b] = Calls(w);
    const auto [mean_a, mean_b] = Times(Mean(w.a), Mean(w.b));
    t.rows.push_back({names[i], calls_a, calls_b, mean_a, mean_b, ChangeOf(w)});
  }
  NoteRest(c.kernels.size(), t);
  return t;
}

Table Collectives(const analysis::Comparison& c) {
  Table t{.id = "collective",
          .title = "Changed collectives",
          .columns = {"changed collective", c.per_step ? "calls/step A" : "calls A", "B", "transfer A", "B",
                      "wait A", "B", c.per_step ? "transfers per step" : "total transfers"},
          .left = {true, false, false, false, false, false, false, false},
          .rows = {},
          .note = absl::StrCat("transfer: excludes waiting for late ranks, which is listed as wait; ",
                               WhatIsCounted(c))};
  for (size_t i = 0; i < std::min(c.collectives.size(), kMostCompared); ++i) {
    const analysis::ComparedWork& w = c.collectives[i];
    const std::string name =
        w.members.empty() ? w.name : absl::StrCat(w.name, " ", analysis::RankList(w.members, kMaxMembers));
    const auto [calls_a, calls_b] = Calls(w);
    const auto [mean_a, mean_b] = Times(Mean(w.a), Mean(w.b));
    const auto [wait_a, wait_b] = Times(w.a.wait_ns, w.b.wait_ns);
    t.rows.push_back({name, calls_a, calls_b, mean_a, mean_b, wait_a, wait_b, ChangeOf(w)});
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
          .note = "reported for only one of the runs"};
  constexpr size_t kWidth = 72;
  for (size_t i = 0; i < std::min(c.findings.size(), kMostCompared); ++i) {
    const analysis::ComparedFinding& f = c.findings[i];
    t.rows.push_back({f.in_a ? "A" : "B", f.id, analysis::Shorten(f.statement, kWidth)});
  }
  NoteRest(c.findings.size(), t);
  return t;
}

// Beside changes: whatever the test says of these two runs, it has not seen a third.
constexpr char kCaution[] =
    "Two runs cannot distinguish a change in the program from one in the machine: if it matters, repeat "
    "both, "
    "and also compare identical runs.";

Json SampleOf(const analysis::Sample& s) {
  return {{"steps", s.count}, {"effective", s.effective}, {"mean_ns", s.mean}, {"std_ns", s.std}};
}

Json TestOf(const analysis::Compared& c) {
  if (!c.test.has_value()) return nullptr;
  const analysis::WelchResult& w = *c.test;
  return {{"difference_ns", w.difference},
          {"low_ns", w.low},
          {"high_ns", w.high},
          {"p_value", w.p_value},
          {"degrees", w.degrees},
          {"effect_size", w.effect_size},
          {"adjusted_p_value", c.adjusted_p}};
}

Json RanksOf(const analysis::Comparison& c) {
  Json out = Json::array();
  for (const analysis::ComparedRank& r : c.ranks) {
    out.push_back({{"rank", r.rank},
                   {"part", analysis::PartName(r.part)},
                   {"a", SampleOf(r.a)},
                   {"b", SampleOf(r.b)},
                   {"test", TestOf(r)},
                   {"beyond_others_ns", r.beyond_others_ns},
                   {"differs_from_others", r.odd}});
  }
  return out;
}

Json ChangesOf(const analysis::Comparison& c) {
  Json out = Json::array();
  for (const analysis::Change& change : c.changes) {
    out.push_back({{"subject", absl::StrReplaceAll(report::Word(change.subject), {{"_", " "}})},
                   {"part", change.part.has_value() ? analysis::PartName(*change.part) : change.name},
                   {"ranks", change.ranks},
                   {"change_ns_per_step", change.change_ns},
                   {"low_ns", change.low_ns},
                   {"high_ns", change.high_ns},
                   {"adjusted_p_value", change.adjusted_p},
                   {"statement", change.statement},
                   {"evidence", change.evidence}});
  }
  return out;
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
                   {"adjusted_p_value", w.adjusted_p},
                   {"members", w.members},
                   {"change_ns_per_step", w.change_ns},
                   {"low_ns", w.low_ns},
                   {"high_ns", w.high_ns}});
  }
  return out;
}

std::string Changes(const analysis::Comparison& c, const Layout& layout) {
  std::string out;
  for (size_t i = 0; i < c.changes.size(); ++i) {
    const analysis::Change& change = c.changes[i];
    absl::StrAppend(&out, "\n", layout.Wrap(absl::StrFormat("%2d  ", i + 1), "    ", change.statement));
    if (!change.evidence.empty()) absl::StrAppend(&out, layout.Wrap("    ", "    ", change.evidence));
  }
  if (!c.changes.empty()) absl::StrAppend(&out, "\n", layout.Wrap("    ", "    ", kCaution));
  return out;
}

}  // namespace

std::string ComparisonText(const analysis::Comparison& c, const std::string& a, const std::string& b,
                           const Layout& layout) {
  std::string out = absl::StrCat("gpuprobe: A is ", a, "\n          B is ", b, "\n\n");
  absl::StrAppend(&out, layout.Wrap(" ", " ", c.verdict));
  for (const std::string& limit : c.limits) absl::StrAppend(&out, layout.Wrap(" ", " ", limit));
  absl::StrAppend(&out, Changes(c, layout));
  for (const Table& table : {Parts(c), Ranks(c), Kernels(c), Collectives(c), Findings(c)}) {
    if (!table.rows.empty()) absl::StrAppend(&out, "\n", layout.Lay(table));
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
    absl::StrAppend(&out, "\n", layout.Lay(t));
  }
  return out;
}

std::string ComparisonJson(const analysis::Comparison& c, const std::string& a, const std::string& b) {
  Json parts = Json::array();
  for (const analysis::ComparedPart& part : c.parts) {
    parts.push_back({{"name", analysis::PartName(part.part)},
                     {"a", SampleOf(part.a)},
                     {"b", SampleOf(part.b)},
                     {"test", TestOf(part)},
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
                     {"level", analysis::kSignificance},
                     {"comparisons", c.comparisons},
                     {"paired", c.paired},
                     {"changes", ChangesOf(c)},
                     {"caution", c.changes.empty() ? "" : kCaution},
                     {"limits", c.limits},
                     {"per_step", c.per_step},
                     {"steps", parts},
                     {"ranks", RanksOf(c)},
                     {"kernels", WorkOf(c.kernels, false)},
                     {"collectives", WorkOf(c.collectives, true)},
                     {"conditions", conditions}};
  return text::SafeJson(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

}  // namespace gpuprobe::render
