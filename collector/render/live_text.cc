#include "collector/render/live_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"
#include "collector/render/text_layout.h"
#include "collector/text/characters.h"

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
    bar.resize(std::max(bar.size(), static_cast<size_t>(std::lround(end * static_cast<double>(width)))),
               mark);
  }
  bar.resize(width, '.');
  return absl::StrCat("[", bar, "]");
}

// The cells of its step and memory, in the order of the tables' columns.
void AppendStep(const LiveRank& r, std::vector<std::string>& cells) {
  const LiveStep s = r.step.value_or(LiveStep{});
  const bool known = r.step.has_value();
  cells.insert(
      cells.end(),
      {Count(r.steps), known ? Duration(s.total_ns) : "-", Share(s.compute_ns, s.total_ns),
       Share(s.exposed_comm_ns, s.total_ns), Share(s.copy_ns, s.total_ns), Share(s.idle_ns, s.total_ns),
       known ? Duration(r.late_ns) : "-", known ? Duration(r.waited_ns) : "-", Bytes(r.memory_bytes)});
}

std::string Name(const LiveRank& r) { return r.rank.has_value() ? absl::StrCat("rank ", r.label) : r.label; }

// "has launched nothing for 3.20 s: in read of /data/shard-7, ... (seen 120 ms ago)"
std::string Silence(const LiveRank& r) {
  return absl::StrCat("has launched nothing for ", Duration(static_cast<double>(r.silent_ns)), ": in ",
                      r.host_in, " (seen ", Duration(static_cast<double>(r.host_in_ago_ns)), " ago)");
}

// Whose hosts the others may wait for: that of the latest rank, and those that have been silent for long.
// Ranks that wait for their own device come after the others.
std::vector<size_t> SilentRanks(const analysis::LiveStatus& status) {
  constexpr uint64_t kLongNs = 1'000'000'000;
  constexpr size_t kMost = 3;
  std::vector<size_t> silent;
  for (size_t i = 0; i < status.ranks.size(); ++i) {
    const LiveRank& r = status.ranks[i];
    if (!r.host_in.empty() && (r.silent_ns >= kLongNs || status.slowest == i)) silent.push_back(i);
  }
  std::stable_sort(silent.begin(), silent.end(), [&](size_t a, size_t b) {
    const LiveRank& left = status.ranks[a];
    const LiveRank& right = status.ranks[b];
    return std::tuple(left.blocked_in.empty(), status.slowest == a, left.silent_ns) >
           std::tuple(right.blocked_in.empty(), status.slowest == b, right.silent_ns);
  });
  silent.resize(std::min(silent.size(), kMost));
  return silent;
}

// What every screen begins with: the job, its step, and what hangs.
std::string Head(const analysis::LiveStatus& status, const Screen& screen) {
  const Layout layout(screen);
  std::string out = absl::StrCat(layout.FirstLine("  ", absl::StrCat("gpuprobe: ", LiveIntroduction(status))),
                                 layout.FirstLine("  ", LiveLine(status, screen)));
  for (const std::string& hang : status.hangs)
    out += layout.Wrap(layout.In(Emphasis::kError, "HANG") + "  ", "      ", hang, Emphasis::kError);
  for (const size_t i : SilentRanks(status)) {
    const LiveRank& r = status.ranks[i];
    out += layout.Wrap("  ", "    ", text::Printable(absl::StrCat(Name(r), " ", Silence(r))));
  }
  return out;
}

}  // namespace

std::string LiveIntroduction(const analysis::LiveStatus& status) {
  std::set<std::pair<std::string, int>> processes;
  size_t further = 0;  // GPUs of processes that have a row already
  for (const LiveRank& r : status.ranks)
    further += processes.emplace(r.host, r.pid).second || r.pid == 0 ? 0 : 1;
  const size_t ranks = status.ranks.size() - further;
  std::string text = absl::StrCat(ranks);
  if (status.world_size > static_cast<int>(ranks)) absl::StrAppend(&text, " of ", status.world_size);
  const bool alone = ranks == 1 && status.world_size <= 1;
  if (further > 0) {
    absl::StrAppend(&text, alone ? " process" : " ranks", " driving ", status.ranks.size(), " GPUs on ");
  } else {
    absl::StrAppend(&text, alone ? " rank on " : " ranks on ");
  }
  absl::StrAppend(&text, status.hosts.size() > 4 ? absl::StrCat(status.hosts.size(), " hosts")
                                                 : absl::StrJoin(status.hosts, ", "));
  std::map<std::string, int> devices;
  for (const std::string& name : status.devices) ++devices[name];
  for (const auto& [name, count] : devices) absl::StrAppend(&text, ", ", count, "x ", name);
  if (!status.cuda.empty()) absl::StrAppend(&text, ", CUDA ", status.cuda);
  if (!status.nccl.empty()) absl::StrAppend(&text, ", NCCL ", status.nccl);
  return text::Printable(text);
}

namespace {

// What a line about the job consists of. The higher `spare`, the sooner it is left out where it does not fit;
// 0: never.
struct Piece {
  std::string text;
  int spare = 0;
  const char* before = "  ";
};

void AddStep(const analysis::LiveStatus& status, const Screen& screen, std::vector<Piece>& pieces) {
  constexpr size_t kBar = 24;
  const LiveStep& s = *status.step;
  const auto share = [&](const char* what, double ns, int spare) {
    pieces.push_back({absl::StrCat(what, " ", Share(ns, s.total_ns)), spare});
  };
  pieces.push_back({absl::StrCat("step ", Count(status.steps)), 0, ""});
  pieces.push_back({Duration(s.total_ns)});
  if (screen.width > Screen::kReadable) pieces.push_back({Bar(s, kBar), 8});
  share("compute", s.compute_ns, 1);
  share("exposed comm", s.exposed_comm_ns, 2);
  share("copy", s.copy_ns, 6);
  share("idle", s.idle_ns, 3);
  if (status.ranks.size() > 1) pieces.push_back({absl::StrCat("wait ", Share(status.wait_share, 1)), 5});
  if (!status.slowest.has_value()) return;
  const LiveRank& slowest = status.ranks[*status.slowest];
  pieces.push_back({absl::StrCat(Name(slowest), " late by ", Duration(slowest.late_ns)), 0, "   "});
}

std::vector<Piece> PiecesOf(const analysis::LiveStatus& status, const Screen& screen) {
  std::vector<Piece> pieces;
  if (status.step.has_value()) {
    AddStep(status, screen, pieces);
  } else {
    pieces.push_back({"no complete step yet", 0, ""});
    pieces.push_back({absl::StrCat(Count(status.records), " records"), 1});
  }
  if (status.idle_ns > 0)
    pieces.push_back(
        {absl::StrCat("no GPU work for ", Duration(static_cast<double>(status.idle_ns))), 0, "   "});
  for (const LiveRank& r : status.ranks) {
    if (r.trouble.empty()) continue;
    pieces.push_back({absl::StrCat(Name(r), " ", r.trouble), 0, "   "});
    break;
  }
  if (status.memory_bytes > 0)
    pieces.push_back({absl::StrCat("memory ", Bytes(status.memory_bytes)), 7, "   "});
  pieces.push_back({absl::StrCat("lost ", Count(status.lost)), status.lost == 0 ? 4 : 0, "   "});
  return pieces;
}

std::string Join(const std::vector<Piece>& pieces) {
  std::string line;
  for (const Piece& piece : pieces) absl::StrAppend(&line, piece.before, piece.text);
  return text::Printable(line);
}

}  // namespace

std::string LiveLine(const analysis::LiveStatus& status, const Screen& screen) {
  return Join(PiecesOf(status, screen));
}

std::string LiveLineWithin(const analysis::LiveStatus& status, const Screen& screen, size_t columns) {
  std::vector<Piece> pieces = PiecesOf(status, screen);
  while (Join(pieces).size() > columns) {
    const auto least = std::max_element(pieces.begin(), pieces.end(),
                                        [](const Piece& a, const Piece& b) { return a.spare < b.spare; });
    if (least->spare == 0) break;
    pieces.erase(least);
  }
  return Join(pieces);
}

std::vector<size_t> OrderOf(const analysis::LiveStatus& status, LiveOrder order) {
  std::vector<size_t> indexes(status.ranks.size());
  std::iota(indexes.begin(), indexes.end(), size_t{0});
  const auto worth = [&](size_t i) -> double {
    const LiveRank& r = status.ranks[i];
    switch (order) {
      case LiveOrder::kRank:
        return 0;  // they come in this order
      case LiveOrder::kLate:
        return r.late_ns;
      case LiveOrder::kStep:
        return r.step.has_value() ? r.step->total_ns : 0;
      case LiveOrder::kWaited:
        return r.waited_ns;
      case LiveOrder::kMemory:
        return static_cast<double>(r.memory_bytes);
    }
    return 0;
  };
  std::stable_sort(indexes.begin(), indexes.end(), [&](size_t a, size_t b) { return worth(a) > worth(b); });
  return indexes;
}

std::string LiveScreen(const analysis::LiveStatus& status, const LiveView& view, const Screen& screen) {
  std::vector<size_t> shown = OrderOf(status, view.order);
  Table table;
  if (shown.size() > view.rows && view.order == LiveOrder::kRank && !view.selected.has_value()) {
    std::stable_sort(shown.begin(), shown.end(), [&](size_t left, size_t right) {
      const LiveRank& a = status.ranks[left];
      const LiveRank& b = status.ranks[right];
      return std::pair(!a.trouble.empty(), a.late_ns) > std::pair(!b.trouble.empty(), b.late_ns);
    });
    table.note = absl::StrCat("the ", view.rows, " latest of ", shown.size(), " ranks");
  } else if (shown.size() > view.rows) {
    table.note = absl::StrCat(view.rows, " of ", shown.size(), " ranks, from the ", view.first + 1, ". on");
  }
  shown.erase(shown.begin(), shown.begin() + static_cast<ptrdiff_t>(std::min(view.first, shown.size())));
  shown.resize(std::min(shown.size(), view.rows));
  table.columns = {"rank", "steps", "step",    "compute", "exposed",
                   "copy", "idle",  "late by", "waited",  "memory"};
  table.left.assign(table.columns.size(), false);
  table.left[0] = true;
  const bool any_trouble =
      std::any_of(shown.begin(), shown.end(), [&](size_t i) { return !status.ranks[i].trouble.empty(); });
  if (any_trouble) table.columns.emplace_back("trouble");
  table.left.resize(table.columns.size(), true);
  for (const size_t i : shown) {
    const LiveRank& r = status.ranks[i];
    const bool selected = view.selected == i;
    if (selected) table.marked.insert(table.rows.size());
    table.rows.push_back({absl::StrCat(!view.selected.has_value() ? ""
                                       : selected                 ? "> "
                                                                  : "  ",
                                       r.host, "/", r.label)});
    AppendStep(r, table.rows.back());
    if (any_trouble) table.rows.back().push_back(r.trouble);
  }
  return absl::StrCat(Head(status, screen), "\n", Layout(screen).Lay(table));
}

std::string LiveRankScreen(const analysis::LiveStatus& status, size_t rank,
                           const std::vector<LiveMoment>& past, const Screen& screen) {
  const LiveRank& r = status.ranks[rank];
  const Layout layout(screen);
  std::string out = Head(status, screen);
  absl::StrAppend(
      &out, "\n",
      layout.Wrap("", "  ", absl::StrCat(Name(r), " on ", r.host, ", process ", r.pid), Emphasis::kStrong));
  if (!r.trouble.empty()) out += layout.Wrap("  ", "  ", r.trouble, Emphasis::kError);
  const std::string where = r.range.empty() ? "" : absl::StrCat(" in range ", r.range);
  if (!r.blocked_in.empty()) {
    out += layout.Wrap("  ", "  ",
                       absl::StrCat("its main thread has waited in ", r.blocked_in, " for ",
                                    Duration(static_cast<double>(r.blocked_ns)), where));
  } else if (!where.empty()) {
    out += layout.Wrap("  ", "  ", absl::StrCat("its main thread is", where));
  }
  if (!r.host_in.empty()) out += layout.Wrap("  ", "  ", absl::StrCat("its host ", Silence(r)));
  if (!r.python.empty()) out += layout.Wrap("  ", "  ", absl::StrCat("in Python it stays in ", r.python));
  if (!r.last_call.empty()) {
    out += layout.Wrap("  ", "  ",
                       absl::StrCat("its last call of a collective was ", r.last_call, ", ",
                                    Duration(static_cast<double>(r.last_call_ago_ns)), " ago"));
  }
  Table table;
  table.columns = {"before", "steps", "step",    "compute", "exposed",
                   "copy",   "idle",  "late by", "waited",  "memory"};
  table.left.assign(table.columns.size(), false);
  for (const LiveMoment& moment : past) {
    table.rows.push_back({moment.ago_ns == 0 ? "now" : Duration(static_cast<double>(moment.ago_ns))});
    AppendStep(moment.rank, table.rows.back());
  }
  return absl::StrCat(out, "\n", layout.Lay(table));
}

}  // namespace gpuprobe::render
