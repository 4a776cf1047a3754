// Whether the ranks of a job fall into two groups, one of which waits for the other.
//
// Separate from straggler_report.h, which looks for single ranks that differ from the rest: where about half
// of them are slower there is no rest to differ from, and who is the odd one is a matter of taste. Decided by
// means over steps alone: each rank's time in which it does not wait for others.
#pragma once

#include <optional>
#include <vector>

namespace gpuprobe::analysis {

struct Report;

struct RankGroups {
  std::vector<int> slower;  // ranks, ascending
  std::vector<int> faster;
  // Means over the ranks of each, per step: in which they do not wait for exposed communication, and the part
  // of it that makes most of the difference.
  double slower_ns = 0;
  double faster_ns = 0;
  enum class Why { kCompute, kHost, kInput, kCopies };
  Why why = Why::kCompute;
  const char* part = "";  // in words
  double slower_part_ns = 0;
  double faster_part_ns = 0;
  // How much longer the faster ones' communication is exposed: they wait for the others.
  double lost_ns = 0;
};

// nullopt: there are not two, both of kGroupRanks ranks and a quarter of all at least, further apart than
// the ranks of each are from one another.
std::optional<RankGroups> RankGroupsOf(const Report& report);
// Only if the slower one costs the other kWaitedStepShare of the step, and, if its hosts make it slow, more
// than hosts were ready to run and had no CPU.
std::optional<RankGroups> RankGroupsThatWait(const Report& report);

}  // namespace gpuprobe::analysis
