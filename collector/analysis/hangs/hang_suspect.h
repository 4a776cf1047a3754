// A suspect: something that processes wait in together, before anybody has judged whether it hangs.
//
// Four producers find suspects, and one judge (hang_judge.h) decides. Example: ranks 0 to 2 wait in
// AllReduce 48,211, which rank 3 has not issued. CollectivesThatWait makes one suspect of it, with three
// processes in `waiting` and one in `missing`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/hangs/hang_evidence.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// A process that issued its part.
struct HangParty {
  uint32_t process = 0;  // index into JobModel::processes
  uint64_t issue_ns = 0;
  LaunchOf launch;
};

// A collective, a send and its receive, or the replay of a graph.
struct HangSuspect {
  std::function<Hang()> describe;  // what it is, without its ranks and times
  bool transfer = false;
  bool creation = false;                    // of a communicator: the processes wait on the host
  bool traced = false;                      // at level calls: launches are not known
  std::vector<HangParty> waiting;           // something on the device came of their call
  std::vector<HangParty> launched_nothing;  // nothing did
  std::vector<uint32_t> missing;            // processes that did not issue it
  size_t absent = 0;                        // further ranks that did not, whose processes are not known
  std::vector<HangParty> behind;            // that wait for something else in the same launches
  // How many calls more than the missing ones those that issued it have made; 0: the missing ones differ.
  uint64_t extra_calls = 0;
  bool told = false;  // reported already, as a mismatch: other waits may follow from it
  std::function<void(uint32_t process, uint64_t now_ns, HangRank&)> describe_rank;  // what more there is
};

// --- producers ---------------------------------------------------------------------------------------------

// One suspect for each communicator whose ranks wait in a collective. `mismatched`: the first call of a
// communicator that its ranks issued differently and that is not over: if they wait in this one or a later
// one, the mismatch is why.
std::vector<HangSuspect> CollectivesThatWait(const model::JobModel& job, uint64_t now_ns,
                                             const std::map<uint64_t, uint64_t>& mismatched);

// Sends and receives that have waited since before `until_ns`: one suspect for each process that others wait
// for, and one for each pair of which both sides are issued (at most kMaxPairs, the oldest).
inline constexpr size_t kMaxPairs = 256;
std::vector<HangSuspect> TransfersThatWait(const model::JobModel& job, uint64_t until_ns);

// Communicators that processes are creating, one suspect for each.
std::vector<HangSuspect> CreationsThatWait(const model::JobModel& job);

// Launches of CUDA graphs whose collectives ranks have waited in since before `until_ns`.
std::vector<HangSuspect> ReplaysThatWait(const model::JobModel& job, uint64_t until_ns);

}  // namespace gpuprobe::analysis
