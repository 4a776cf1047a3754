#include "collector/analysis/hangs/hangs.h"

#include <algorithm>
#include <tuple>

#include "collector/analysis/hangs/hang_describer.h"
#include "collector/analysis/hangs/hang_judge.h"
#include "collector/analysis/hangs/hang_mismatches.h"
#include "collector/analysis/hangs/hang_no_work.h"
#include "collector/analysis/trust/duplicate_ranks.h"

namespace gpuprobe::analysis {
std::vector<Hang> HangsOf(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns,
                          std::vector<uint32_t>* held_back) {
  Mismatches mismatches = FindMismatches(job, now_ns, after_ns);
  HangJudge judge(job, now_ns, after_ns);
  judge.Add(CollectivesThatWait(job, now_ns, mismatches.first));
  judge.Add(TransfersThatWait(job, Since(now_ns, after_ns)));
  judge.Add(ReplaysThatWait(job, Since(now_ns, after_ns)));
  judge.Add(CreationsThatWait(job));

  std::vector<Hang> hangs = std::move(mismatches.hangs);
  const ProcessLabels labels(job);
  const HangDescriber describer(job, labels);
  for (const JudgedHang& hang : judge.Judge()) hangs.push_back(describer.Describe(hang));
  if (std::all_of(hangs.begin(), hangs.end(), [](const Hang& hang) { return hang.over; })) {
    if (std::optional<Hang> idle = JobWithoutWork(job, labels, now_ns, after_ns); idle.has_value())
      hangs.push_back(*std::move(idle));
  }
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
