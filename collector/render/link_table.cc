#include "collector/render/link_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/communication/link_model.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::render {
namespace {

using analysis::Bytes;
using analysis::Count;
using analysis::Duration;
using analysis::LinkModel;
using analysis::Percent;
using analysis::Rate;
using analysis::ShortComm;

std::string SizesText(const LinkModel& m) {
  return absl::StrCat(m.sizes.size(), ": ", Bytes(m.sizes.front().size_bytes), " - ",
                      Bytes(m.sizes.back().size_bytes));
}

// "+38 %": what a tree would take instead, for the smallest and the largest size.
std::string TreeText(const LinkModel& m) {
  std::vector<std::string> parts;
  for (const LinkModel::Size* size : {&m.sizes.front(), &m.sizes.back()}) {
    if (!size->tree_ns.has_value() || size->predicted_ns <= 0) return "-";
    parts.push_back(absl::StrFormat("%+.0f %%", (*size->tree_ns / size->predicted_ns - 1) * 100));
  }
  return absl::StrJoin(parts, " / ");
}

// Communicators that share one row.
bool Alike(const LinkModel& a, const LinkModel& b) {
  constexpr double kSame = 0.1;
  const auto near = [](double x, double y) { return std::abs(x - y) <= kSame * std::max(x, y); };
  return a.op == b.op && a.comm_ranks == b.comm_ranks && near(a.alpha_ns, b.alpha_ns) &&
         near(a.beta_gbytes_per_s, b.beta_gbytes_per_s);
}

// "8", "2 x 8" hosts and their ranks, "3 x 2-8".
std::string HostsText(const analysis::CommunicatorReport& c) {
  if (!c.ranks_per_host.has_value()) return "-";
  const auto [least, most] = *c.ranks_per_host;
  return absl::StrCat(c.hosts, " x ", least, most == least ? "" : absl::StrCat("-", most));
}

}  // namespace

Table LinksTable(const std::vector<LinkModel>& links) {
  Table t{
      .id = "links",
      .title = "Links",
      .columns = {"link", "comm", "ranks", "sizes", "latency", "per hop", "bandwidth", "fit error", "tree"},
      .left = {true, true, false, true, false, false, false, false, false},
      .rows = {},
      .note = ""};
  constexpr size_t kMaxRows = 6;
  bool tree = false;
  bool latency_unseen = false;
  bool bandwidth_unseen = false;
  size_t told = 0;
  for (const LinkModel& m : links) {
    const LinkModel* like = nullptr;  // shown already
    for (const LinkModel& other : links) {
      if (&other == &m) break;
      if (Alike(other, m)) like = &other;
    }
    if (like != nullptr) {
      ++told;
      continue;
    }
    if (t.rows.size() == kMaxRows) continue;
    ++told;
    latency_unseen = latency_unseen || (!m.latency_seen && m.half_bandwidth_bytes.has_value());
    bandwidth_unseen = bandwidth_unseen || !m.bandwidth_seen;
    const std::string trees = TreeText(m);
    tree = tree || trees != "-";
    t.rows.push_back(
        {m.op, ShortComm(m.comm), absl::StrCat(m.comm_ranks), SizesText(m),
         m.half_bandwidth_bytes.has_value() ? absl::StrCat(Duration(m.alpha_ns), m.latency_seen ? "" : " ?")
                                            : "not seen",
         m.hop_alpha_ns.has_value() && *m.hop_alpha_ns > 0 ? Duration(*m.hop_alpha_ns) : "-",
         absl::StrCat(Rate(m.beta_gbytes_per_s), m.bandwidth_seen ? "" : " ?"),
         absl::StrCat(Percent(m.mean_relative_error), ", at most ", Percent(m.worst_relative_error)), trees});
  }
  t.note =
      "fit of transfers, excluding waits: latency + bus bytes / bandwidth; fit error: mean and largest over "
      "the sizes";
  if (tree) absl::StrAppend(&t.note, "; tree: estimated time compared with a ring, smallest / largest size");
  if (latency_unseen)
    absl::StrAppend(&t.note, "; latency ?: extrapolated; no message is small enough to show it");
  if (bandwidth_unseen)
    absl::StrAppend(&t.note, "; bandwidth ?: extrapolated; no message is large enough to show it");
  if (told > t.rows.size())
    absl::StrAppend(&t.note, "; communicators within 10 % of each other are shown once");
  if (links.size() > told) absl::StrAppend(&t.note, "; ", links.size() - told, " more in report.json");
  return t;
}

Table CommunicatorsTable(const analysis::Report& report) {
  Table t{
      .id = "communicators",
      .title = "Communicators",
      .columns = {"communicator", "name", "ranks", "hosts", "created by", "calls", "bytes", "mostly run as"},
      .left = {true, true, false, false, true, false, false, true},
      .rows = {},
      .note = "x4: four identical communicators; hosts: number of hosts x ranks on each"};
  constexpr size_t kMaxRows = 8;
  struct Alike {  // but for the hash
    std::string first;
    int count = 0;
    uint64_t calls = 0;
    uint64_t bytes = 0;
  };
  std::map<std::vector<std::string>, Alike> alike;
  std::vector<std::vector<std::string>> order;
  std::set<std::vector<int>> sets;
  for (const analysis::CommunicatorReport& c : report.communicators) sets.insert(c.members);
  if (sets.size() < 2 && report.conditions.hosts.size() < 2) return t;
  for (const analysis::CommunicatorReport& c : report.communicators) {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    for (const auto& [op, sum] : c.operations) {
      calls += sum.calls;
      bytes += sum.bytes;
    }
    const std::string name = analysis::TellingName(c.name);
    const std::vector<std::string> what{
        name.empty() ? "-" : analysis::Shorten(name, 24), c.ranks.has_value() ? absl::StrCat(*c.ranks) : "?",
        HostsText(c), c.made_by.empty() ? "-" : c.made_by, c.ran_as.empty() ? "-" : c.ran_as};
    const auto [at, added] = alike.try_emplace(what);
    if (added) order.push_back(what);
    ++at->second.count;
    at->second.first = ShortComm(c.comm);
    at->second.calls += calls;
    at->second.bytes += bytes;
  }
  for (const std::vector<std::string>& what : order) {
    if (t.rows.size() == kMaxRows) {
      absl::StrAppend(&t.note, "; ", order.size() - kMaxRows, " more kinds in report.json");
      break;
    }
    const Alike& those = alike[what];
    t.rows.push_back({those.count == 1 ? those.first : absl::StrCat("x", those.count), what[0], what[1],
                      what[2], what[3], Count(those.calls), Bytes(those.bytes), what[4]});
  }
  return t;
}

}  // namespace gpuprobe::render
