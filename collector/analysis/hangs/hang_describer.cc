#include "collector/analysis/hangs/hang_describer.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

void AddLink(HangLink link, Hang& hang) {
  if (hang.links.size() < Hang::kMaxLinks) {
    hang.links.push_back(std::move(link));
  } else {
    ++hang.links_left_out;
  }
}

}  // namespace

Hang HangDescriber::Describe(const JudgedHang& judged) const {
  const JudgedSuspect& s = *judged.suspects.front();
  Hang hang = s.what.describe();
  hang.since_ns = s.since_ns;
  hang.waiting_ns = Since(s.now_ns, s.since_ns);
  hang.earlier_work = s.earlier_work;
  const bool alone = s.what.transfer || s.what.creation;
  hang.issued = alone ? static_cast<int>(s.what.waiting.size())
                      : hang.comm_ranks - hang.not_heard - static_cast<int>(s.what.missing.size()) -
                            static_cast<int>(s.what.launched_nothing.size());
  for (const JudgedSuspect* each : judged.suspects) AddWaiting(*each, hang);
  if (!judged.circle.empty()) {
    AddCircle(judged, hang);
    return hang;
  }
  if (IsExtra(s)) {
    AddExtra(s, hang);
  } else {
    AddCulprits(s, hang);
    if (s.what.creation) hang.kind = Hang::Kind::kCreation;
  }
  AddFollowers(judged, hang);
  return hang;
}

void HangDescriber::AddCulprits(const JudgedSuspect& s, Hang& hang) const {
  if (!s.halted.empty()) {
    hang.kind = Hang::Kind::kMissingRank;
    hang.earlier_work = false;
    hang.issued = static_cast<int>(
        std::count_if(s.what.waiting.begin(), s.what.waiting.end(), [&](const HangParty& party) {
          return !std::binary_search(s.halted.begin(), s.halted.end(), party.process);
        }));
    for (const uint32_t process : s.halted) AddRank(s, process, HangRank::State::kHalted, hang);
  } else if (s.all_issued()) {
    hang.kind = Hang::Kind::kAllIssued;
    hang.culprit_known = false;
    for (const HangParty& party : s.what.waiting) AddRank(s, party.process, HangRank::State::kWaiting, hang);
  } else {
    hang.kind = Hang::Kind::kMissingRank;
    hang.culprit_known = !CulpritsOf(s).empty();
    for (const uint32_t process : s.what.missing) AddRank(s, process, HangRank::State::kNotIssued, hang);
    for (const HangParty& party : s.what.launched_nothing)
      AddRank(s, party.process, HangRank::State::kLaunchedNothing, hang);
  }
}

// Most ranks did not issue it, made the same number of calls, and are gone and well, or have done all the
// work that those that issued it did before it.
bool HangDescriber::IsExtra(const JudgedSuspect& s) const {
  const size_t issued = s.what.waiting.size() + s.what.launched_nothing.size();
  if (s.what.transfer || s.what.extra_calls == 0 || s.what.missing.size() <= issued) return false;
  uint64_t before = 0;
  for (const HangParty& party : s.what.waiting)
    before = std::max(before, LaunchesSinceLastPlan(Of(party.process), party.launch));
  return std::all_of(s.what.missing.begin(), s.what.missing.end(), [&](uint32_t process) {
    if (EndedWell(Of(process))) return true;
    return FindHalt(Of(process), s.now_ns) == nullptr && HeardAllLaunches(Of(process)) &&
           LaunchesSinceLastPlan(Of(process), {}) >= before;
  });
}

void HangDescriber::AddExtra(const JudgedSuspect& s, Hang& hang) const {
  hang.kind = Hang::Kind::kExtraCall;
  hang.extra_calls = s.what.extra_calls;
  hang.earlier_work = false;
  for (const HangParty& party : s.what.waiting) AddRank(s, party.process, HangRank::State::kWaiting, hang);
  for (const HangLink::Kind kind : {HangLink::Kind::kExited, HangLink::Kind::kSameWork}) {
    std::vector<uint32_t> done;
    for (const uint32_t process : s.what.missing) {
      if (EndedWell(Of(process)) == (kind == HangLink::Kind::kExited)) done.push_back(process);
    }
    if (!done.empty()) AddLink({.kind = kind, .who = Who(done), .call = "", .other = ""}, hang);
  }
}

void HangDescriber::AddCircle(const JudgedHang& judged, Hang& hang) const {
  hang.kind = Hang::Kind::kCircular;
  hang.culprit_known = false;
  hang.earlier_work = false;
  std::set<uint32_t> processes;
  for (size_t i = 0; i < judged.suspects.size(); ++i) {
    const JudgedSuspect& s = *judged.suspects[i];
    const JudgedSuspect& next = *judged.suspects[(i + 1) % judged.suspects.size()];
    const uint32_t process = judged.circle[i];
    const bool missing =
        std::find(s.what.missing.begin(), s.what.missing.end(), process) != s.what.missing.end();
    AddLink({.kind = missing ? HangLink::Kind::kNotIssued : HangLink::Kind::kQueued,
             .who = Who({process}),
             .call = PartOf(next, process),
             .other = PartOf(s, process)},
            hang);
    processes.insert(process);
  }
  for (const uint32_t process : processes)
    AddRank(*judged.suspects.front(), process, HangRank::State::kWaiting, hang);
}

// The waits for the same processes on other communicators, and those that follow from any of them.
void HangDescriber::AddFollowers(const JudgedHang& judged, Hang& hang) const {
  const auto add = [&](const JudgedSuspect& s, const std::vector<uint32_t>& waits_for) {
    std::vector<uint32_t> waiting;
    for (const HangParty& party : s.what.waiting) {
      if (std::find(waits_for.begin(), waits_for.end(), party.process) == waits_for.end())
        waiting.push_back(party.process);
    }
    if (waiting.empty()) return;
    AddLink({.kind = HangLink::Kind::kFollows,
             .who = Who(waiting),
             .call = HangCallText(s.what.describe()),
             .other = Who(waits_for)},
            hang);
  };
  for (size_t i = 1; i < judged.suspects.size(); ++i)
    add(*judged.suspects[i], CulpritsOf(*judged.suspects.front()));
  for (const auto& [s, process] : judged.followers) add(*s, {process});
}

// What the process issued in it, or has to: "its Recv from rank 0".
std::string HangDescriber::PartOf(const JudgedSuspect& s, uint32_t process) const {
  const Hang hang = s.what.describe();
  if (!hang.transfer.has_value()) return HangCallText(hang);
  const HangTransfer& t = *hang.transfer;
  const bool self = labels_.Of(Of(process)) == t.label;
  const std::string op = self ? hang.shape.op : t.counterpart;
  const bool ranked = (self ? t.peer : t.rank).has_value();
  return absl::StrCat(hang.replay.has_value() ? "its CUDA graph with the " : "its ", op,
                      nccl::IsSend(op) ? " to " : " from ", ranked ? "rank " : "",
                      self ? t.peer_label : t.label);
}

// "rank 3", "ranks 0-2", "rank 0 (pid 4711), pid 4712"
std::string HangDescriber::Who(const std::vector<uint32_t>& processes) const {
  std::vector<int> ranks;
  std::vector<std::string> labels;
  for (const uint32_t process : processes) {
    const bool ranked = HasRank(Of(process).identity());
    if (ranked && !labels_.IsDuplicate(Of(process))) ranks.push_back(Of(process).identity().rank());
    labels.push_back(absl::StrCat(ranked ? "rank " : "", labels_.Of(Of(process))));
  }
  if (ranks.size() < labels.size() || ranks.size() < 2) return absl::StrJoin(labels, ", ");
  std::sort(ranks.begin(), ranks.end());
  return absl::StrCat("ranks ", RankList(ranks, 8));
}

void HangDescriber::AddRank(const JudgedSuspect& s, uint32_t process, HangRank::State state,
                            Hang& hang) const {
  if (hang.ranks.size() >= Hang::kMaxRanks) {
    ++hang.ranks_left_out;
    return;
  }
  hang.ranks.push_back(DescribeRank(Of(process), state, s.now_ns));
  hang.ranks.back().label = labels_.Of(Of(process));
  hang.ranks.back().load = HostLoadOf(Of(process), s.since_ns);
  hang.ranks.back().python = PythonFrames(Of(process).condition().python());
  if (s.what.describe_rank != nullptr) s.what.describe_rank(process, s.now_ns, hang.ranks.back());
}

void HangDescriber::AddWaiting(const JudgedSuspect& s, Hang& hang) const {
  for (const HangParty& party : s.what.waiting) {
    if (hang.waiting.size() == Hang::kMaxRanks) return;
    if (std::binary_search(s.halted.begin(), s.halted.end(), party.process)) continue;
    const v1::Identity& id = Of(party.process).identity();
    const bool known = std::any_of(hang.waiting.begin(), hang.waiting.end(), [&](const HangWaiter& w) {
      return w.pid == id.pid() && w.host == id.host();
    });
    if (!known)
      hang.waiting.push_back({.label = labels_.Of(Of(party.process)), .host = id.host(), .pid = id.pid()});
  }
}

}  // namespace gpuprobe::analysis
