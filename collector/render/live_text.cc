#include "collector/render/live_text.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::render {
namespace {

using analysis::Bytes;
using analysis::Count;
using analysis::Duration;
using analysis::LiveRank;
using analysis::LiveStep;

std::string Share(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%.0f%%", 100 * part / whole) : "-";
}

// "[############=====...]": compute, exposed communication, idle; copies are ':'. A part below half a
// character is left out.
std::string Bar(const LiveStep& s, size_t width) {
  const std::pair<double, char> parts[] = {
      {s.compute_ns, '#'}, {s.exposed_comm_ns, '='}, {s.copy_ns, ':'}, {s.idle_ns, '.'}};
  std::string bar;
  double sum_ns = 0;
  for (const auto& [part_ns, mark] : parts) {
    sum_ns += part_ns;
    const double end = s.total_ns > 0 ? std::min(sum_ns / s.total_ns, 1.0) : 0;
    bar.resize(std::max(bar.size(), static_cast<size_t>(end * static_cast<double>(width) + 0.5)), mark);
  }
  bar.resize(width, '.');
  return absl::StrCat("[", bar, "]");
}

std::string Name(const LiveRank& r) { return r.rank.has_value() ? absl::StrCat("rank ", r.label) : r.label; }

}  // namespace

std::string LiveIntroduction(const analysis::LiveStatus& status) {
  const size_t ranks = status.ranks.size();
  std::string text = absl::StrCat(ranks);
  if (status.world_size > static_cast<int>(ranks)) absl::StrAppend(&text, " of ", status.world_size);
  absl::StrAppend(&text, ranks == 1 && status.world_size <= 1 ? " rank on " : " ranks on ",
                  status.hosts.size() > 4 ? absl::StrCat(status.hosts.size(), " hosts")
                                          : absl::StrJoin(status.hosts, ", "));
  std::map<std::string, int> devices;
  for (const std::string& name : status.devices) ++devices[name];
  for (const auto& [name, count] : devices) absl::StrAppend(&text, ", ", count, "x ", name);
  if (!status.cuda.empty()) absl::StrAppend(&text, ", CUDA ", status.cuda);
  if (!status.nccl.empty()) absl::StrAppend(&text, ", NCCL ", status.nccl);
  return Printable(text);
}

std::string LiveLine(const analysis::LiveStatus& status, const Screen& screen) {
  constexpr size_t kBar = 24;
  std::string line;
  if (status.step.has_value()) {
    const LiveStep& s = *status.step;
    line =
        absl::StrCat("step ", Count(status.steps), "  ", Duration(s.total_ns), "  ",
                     screen.width > Screen::kReadable ? Bar(s, kBar) + "  " : "", "compute ",
                     Share(s.compute_ns, s.total_ns), "  exposed comm ", Share(s.exposed_comm_ns, s.total_ns),
                     "  copy ", Share(s.copy_ns, s.total_ns), "  idle ", Share(s.idle_ns, s.total_ns));
    if (status.ranks.size() > 1) absl::StrAppend(&line, "  wait ", Share(status.wait_share, 1));
    if (status.slowest.has_value()) {
      const LiveRank& slowest = status.ranks[*status.slowest];
      absl::StrAppend(&line, "   ", Name(slowest), " late by ", Duration(slowest.late_ns));
    }
  } else {
    line = absl::StrCat("no complete step yet  ", Count(status.records), " records");
  }
  if (status.idle_ns > 0)
    absl::StrAppend(&line, "   no GPU work for ", Duration(static_cast<double>(status.idle_ns)));
  for (const LiveRank& r : status.ranks) {
    if (r.trouble.empty()) continue;
    absl::StrAppend(&line, "   ", Name(r), " ", r.trouble);
    break;
  }
  if (status.memory_bytes > 0) absl::StrAppend(&line, "   memory ", Bytes(status.memory_bytes));
  return Printable(absl::StrCat(line, "   lost ", Count(status.lost)));
}

std::string LiveScreen(const analysis::LiveStatus& status) {
  std::vector<const LiveRank*> shown;
  for (const LiveRank& r : status.ranks) shown.push_back(&r);
  Table table;
  if (shown.size() > kLiveRanks) {
    std::stable_sort(shown.begin(), shown.end(), [](const LiveRank* a, const LiveRank* b) {
      return std::pair(!a->trouble.empty(), a->late_ns) > std::pair(!b->trouble.empty(), b->late_ns);
    });
    table.note = absl::StrCat("the ", kLiveRanks, " latest of ", shown.size(), " ranks");
    shown.resize(kLiveRanks);
  }
  table.columns = {"rank", "steps", "step",    "compute", "exposed",
                   "copy", "idle",  "late by", "waited",  "memory"};
  table.left.assign(table.columns.size(), false);
  table.left[0] = true;
  const bool any_trouble =
      std::any_of(shown.begin(), shown.end(), [](const LiveRank* r) { return !r->trouble.empty(); });
  if (any_trouble) table.columns.emplace_back("trouble");
  table.left.resize(table.columns.size(), true);
  for (const LiveRank* r : shown) {
    const LiveStep s = r->step.value_or(LiveStep{});
    const bool known = r->step.has_value();
    table.rows.push_back({absl::StrCat(r->host, "/", r->label), Count(r->steps),
                          known ? Duration(s.total_ns) : "-", Share(s.compute_ns, s.total_ns),
                          Share(s.exposed_comm_ns, s.total_ns), Share(s.copy_ns, s.total_ns),
                          Share(s.idle_ns, s.total_ns), known ? Duration(r->late_ns) : "-",
                          known ? Duration(r->waited_ns) : "-", Bytes(r->memory_bytes)});
    if (any_trouble) table.rows.back().push_back(r->trouble);
  }
  const Layout layout;
  std::string hangs;
  for (const std::string& hang : status.hangs) absl::StrAppend(&hangs, layout.Wrap("HANG  ", "      ", hang));
  return absl::StrCat("gpuprobe: ", LiveIntroduction(status), "\n", LiveLine(status), "\n", hangs, "\n",
                      layout.Lay(table));
}

}  // namespace gpuprobe::render
