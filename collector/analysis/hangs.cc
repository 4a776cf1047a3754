#include "collector/analysis/hangs.h"

#include <algorithm>
#include <tuple>

#include "collector/analysis/hang_judge.h"
#include "collector/analysis/hang_mismatches.h"

namespace gpuprobe::analysis {
namespace {

using model::ProcessModel;

// Turns a suspect that is a hang into the report's data.
class Describer {
 public:
  explicit Describer(const model::JobModel& job) : job_(job) {}

  Hang Describe(const JudgedSuspect& s) const {
    Hang hang = s.what.describe();
    hang.since_ns = s.since_ns;
    hang.waiting_ns = Since(s.now_ns, s.since_ns);
    hang.earlier_work = s.earlier_work;
    AddWaiting(s, hang);
    hang.issued = s.what.transfer
                      ? static_cast<int>(s.what.waiting.size())
                      : hang.comm_ranks - hang.not_heard - static_cast<int>(s.what.missing.size()) -
                            static_cast<int>(s.what.launched_nothing.size());
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
      for (const HangParty& party : s.what.waiting)
        AddRank(s, party.process, HangRank::State::kWaiting, hang);
    } else {
      hang.kind = Hang::Kind::kMissingRank;
      for (const uint32_t process : s.what.missing) AddRank(s, process, HangRank::State::kNotIssued, hang);
      for (const HangParty& party : s.what.launched_nothing)
        AddRank(s, party.process, HangRank::State::kLaunchedNothing, hang);
    }
    return hang;
  }

 private:
  const ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }

  void AddRank(const JudgedSuspect& s, uint32_t process, HangRank::State state, Hang& hang) const {
    if (hang.ranks.size() >= Hang::kMaxRanks) {
      ++hang.ranks_left_out;
      return;
    }
    hang.ranks.push_back(DescribeRank(Of(process), state, s.now_ns));
    hang.ranks.back().load = HostLoadOf(Of(process), s.since_ns);
    if (s.what.describe_rank != nullptr) s.what.describe_rank(process, s.now_ns, hang.ranks.back());
  }

  void AddWaiting(const JudgedSuspect& s, Hang& hang) const {
    for (const HangParty& party : s.what.waiting) {
      if (hang.waiting.size() == Hang::kMaxRanks) return;
      if (std::binary_search(s.halted.begin(), s.halted.end(), party.process)) continue;
      const HangRank r = DescribeRank(Of(party.process), HangRank::State::kWaiting, s.now_ns);
      hang.waiting.push_back({.label = r.label, .host = r.host, .pid = r.pid});
    }
  }

  const model::JobModel& job_;
};

}  // namespace

std::vector<Hang> HangsOf(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns,
                          std::vector<uint32_t>* held_back) {
  Mismatches mismatches = FindMismatches(job, now_ns);
  HangJudge judge(job, now_ns, after_ns);
  judge.Add(CollectivesThatWait(job, now_ns, mismatches.communicators));
  judge.Add(TransfersThatWait(job, Since(now_ns, after_ns)));
  judge.Add(ReplaysThatWait(job, Since(now_ns, after_ns)));

  std::vector<Hang> hangs = std::move(mismatches.hangs);
  const Describer describer(job);
  for (const JudgedSuspect* s : judge.Judge()) hangs.push_back(describer.Describe(*s));
  std::stable_sort(hangs.begin(), hangs.end(),
                   [](const Hang& a, const Hang& b) { return a.waiting_ns > b.waiting_ns; });
  if (held_back != nullptr) held_back->assign(judge.held_back().begin(), judge.held_back().end());
  // Independent of the order in which the ranks reported.
  const auto place = [](const HangRank& r) { return std::tuple(r.rank.value_or(INT32_MAX), r.host, r.pid); };
  for (Hang& hang : hangs) {
    std::sort(hang.ranks.begin(), hang.ranks.end(),
              [&](const HangRank& a, const HangRank& b) { return place(a) < place(b); });
  }
  return hangs;
}

uint64_t JobEndNs(const model::JobModel& job) {
  uint64_t end_ns = 0;
  for (const auto& process : job.processes()) end_ns = std::max(end_ns, LastHeardNs(*process));
  return end_ns;
}

}  // namespace gpuprobe::analysis
