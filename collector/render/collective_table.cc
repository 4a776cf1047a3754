#include "collector/render/collective_table.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"
#include "collector/report/words.h"

namespace gpuprobe::render {
namespace {

using analysis::Bytes;
using analysis::CollectiveReport;
using analysis::Count;
using analysis::Duration;
using analysis::Percent;
using analysis::Rate;
using analysis::ShortComm;

using Role = std::vector<const CollectiveReport*>;

bool SameKind(const CollectiveReport& a, const CollectiveReport& b) {
  return a.op == b.op && a.size_bytes == b.size_bytes && a.mixed_sizes == b.mixed_sizes &&
         a.comm_ranks == b.comm_ranks && a.comm_ranks > 0 && a.calls_per_plan == b.calls_per_plan &&
         analysis::TellingName(a.comm_name) == analysis::TellingName(b.comm_name);
}

using Value = std::function<std::optional<double>(const CollectiveReport&)>;
using Text = std::function<std::string(double)>;

// What those that have a value have: the mean, "198 us", or, where they differ by more than `alike`, from the
// least to the largest, "5.1-15.2 us", "980 us - 1.02 ms".
std::string Spread(const Role& role, const Value& value, const Text& text, double alike = 0.1) {
  std::vector<double> values;
  for (const CollectiveReport* c : role) {
    if (const std::optional<double> of = value(*c); of.has_value()) values.push_back(*of);
  }
  if (values.empty()) return "-";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (*high - *low <= alike * *high)
    return text(std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()));
  const std::string least = text(*low);
  const std::string most = text(*high);
  const std::string unit = most.substr(most.find(' '));
  if (least.substr(least.find(' ')) != unit) return absl::StrCat(least, " - ", most);
  return absl::StrCat(least.substr(0, least.size() - unit.size()), "-", most);
}

std::string TransferAndWait(const Role& role) {
  const auto steady = [](double analysis::SteadyCalls::*part) {
    return [part](const CollectiveReport& c) -> std::optional<double> {
      if (c.steady.compared == 0) return std::nullopt;
      return c.steady.*part;
    };
  };
  const std::string transfer = Spread(role, steady(&analysis::SteadyCalls::transfer_ns), Duration);
  if (transfer != "-")
    return absl::StrCat(transfer, " / ", Spread(role, steady(&analysis::SteadyCalls::wait_ns), Duration));
  // Calls that are only made before the first step after the warm-up.
  const std::string before = Spread(
      role, [](const CollectiveReport& c) { return c.transfer_mean_ns; }, Duration);
  return before == "-" ? before : before + " (start)";
}

bool Unheard(const Role& role) {
  return std::any_of(role.begin(), role.end(), [](const CollectiveReport* c) {
    return c->heard_ranks > 0 && c->heard_ranks < c->comm_ranks;
  });
}

std::vector<std::string> RowOf(const Role& role, bool peak) {
  const CollectiveReport& first = *role.front();
  uint64_t calls = 0;
  for (const CollectiveReport* c : role) calls += c->calls;
  const auto timed = [](auto part) {
    return [part](const CollectiveReport& c) -> std::optional<double> {
      if (c.time_ns.count == 0) return std::nullopt;
      return static_cast<double>(c.time_ns.*part);
    };
  };
  std::vector<std::string> row{
      first.fused ? absl::StrCat(first.op, " x", first.calls_per_plan, " fused") : first.op,
      role.size() > 1 ? absl::StrCat("x", role.size()) : ShortComm(first.comm),
      first.comm_ranks == 0 ? "?"
      : Unheard(role)       ? absl::StrCat(first.heard_ranks, "/", first.comm_ranks)
                            : absl::StrCat(first.comm_ranks),
      Count(calls),
      first.mixed_sizes ? "mixed" : Bytes(first.size_bytes),
      Spread(role, timed(&model::Summary::p50), Duration),
      Spread(role, timed(&model::Summary::p95), Duration),
      Spread(
          role, [](const CollectiveReport& c) { return c.algbw; }, Rate, 1),
      Spread(
          role, [](const CollectiveReport& c) { return c.busbw; }, Rate)};
  if (peak)
    row.push_back(Spread(
        role, [](const CollectiveReport& c) { return c.peak_share; }, Percent));
  row.push_back(TransferAndWait(role));
  return row;
}

}  // namespace

std::vector<Role> FoldRoles(const std::vector<CollectiveReport>& collectives) {
  std::vector<Role> roles;
  std::vector<std::set<uint32_t>> members;
  for (const CollectiveReport& c : collectives) {
    size_t at = 0;
    for (; at < roles.size(); ++at) {
      const bool apart = std::none_of(c.members.begin(), c.members.end(),
                                      [&](uint32_t member) { return members[at].contains(member); });
      if (!c.members.empty() && apart && SameKind(*roles[at].front(), c)) break;
    }
    if (at == roles.size()) {
      roles.emplace_back();
      members.emplace_back();
    }
    roles[at].push_back(&c);
    members[at].insert(c.members.begin(), c.members.end());
  }
  return roles;
}

Table CollectivesTable(const analysis::Report& report) {
  Table t{.id = "collectives",
          .title = "Collectives",
          .columns = {"collective", "comm", "ranks", "calls", "size", "time p50", "p95", "algbw", "busbw"},
          .left = {true, true, false, false, false, false, false, false, false},
          .rows = {},
          .note = ""};
  const bool peak = report.communication.link_peak.has_value();
  if (peak) {
    t.columns.emplace_back("of peak");
    t.left.push_back(false);
  }
  t.columns.emplace_back("transfer / wait");
  t.left.push_back(false);
  constexpr size_t kMaxRows = 16;
  bool fused = false;
  bool folded = false;
  bool compared = false;
  bool unheard = false;
  const std::vector<Role> roles = FoldRoles(report.collectives);
  for (size_t i = 0; i < std::min(roles.size(), kMaxRows); ++i) {
    fused = fused || roles[i].front()->fused;
    folded = folded || roles[i].size() > 1;
    unheard = unheard || Unheard(roles[i]);
    compared = compared || roles[i].front()->compared_plans > 0;
    t.rows.push_back(RowOf(roles[i], peak));
  }
  std::vector<std::string> notes;
  if (!report.communication.pattern.empty())
    notes.push_back(
        absl::StrCat("parallelism: ", absl::StrJoin(report.communication.pattern, ", ",
                                                    [](std::string* out, analysis::CommunicationRole role) {
                                                      *out += report::Word(role);
                                                    })));
  if (roles.size() > kMaxRows) notes.push_back(absl::StrCat(roles.size() - kMaxRows, " more in report.json"));
  if (folded)
    notes.emplace_back(
        "x2: two communicators with disjoint ranks; a range is shown where they differ by more than 10 %");
  if (compared && report.steps.has_value())
    notes.emplace_back(
        peak ? "transfer / wait: mean per call after the warm-up; of peak: bus bandwidth of the transfers, "
               "excluding waits; bandwidths leave out each rank's first call"
             : "transfer / wait: mean per call after the warm-up; bandwidths leave out each rank's first "
               "call");
  if (unheard)
    notes.emplace_back("ranks: recorded/all; where some are missing, transfers include waiting for them");
  if (fused)
    notes.emplace_back(
        "fused: several calls in one kernel, timed as one; size and bandwidth cover all its calls");
  for (const std::string& note : notes) absl::StrAppend(&t.note, t.note.empty() ? "" : "; ", note);
  return t;
}

}  // namespace gpuprobe::render
