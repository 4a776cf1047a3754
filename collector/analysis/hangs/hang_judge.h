// The judge of suspects: decides which of the waits that the producers found are hangs.
//
// Example: ranks 0 to 2 wait in an AllReduce that rank 3 has not issued. If rank 3 has launched nothing, read
// and written nothing and completed nothing for `after_ns`, the wait is a hang. If rank 3 itself waits in a
// broadcast on another communicator, the AllReduce is `behind` that suspect, and only the broadcast is
// reported. Two ranks that each wait in a call which the other has not reached are a circle, and one hang.
//
// Pure: the time is a parameter.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/analysis/hangs/hang_suspect.h"

namespace gpuprobe::analysis {

// One of a suspect's processes waits in another suspect.
struct WaitsBehind {
  size_t suspect = 0;    // the other
  uint32_t process = 0;  // that waits in it
};

// A suspect as the judge left it.
struct JudgedSuspect {
  HangSuspect what;
  bool eligible = false;            // nothing explains the wait
  bool earlier_work = false;        // work launched before it is not known to have ended
  std::vector<WaitsBehind> behind;  // each other suspect once
  std::vector<uint32_t> halted;     // its processes that cannot run, and made the others wait for the limit
  uint64_t now_ns = 0;
  uint64_t since_ns = UINT64_MAX;
  uint64_t newest_ns = 0;  // when the last rank issued it
  bool all_issued() const {
    return what.missing.empty() && what.launched_nothing.empty() && what.absent == 0;
  }
};

// A hang, and the waits that follow from it.
struct JudgedHang {
  // More than one: in a circle each waits behind the next, the last behind the first. Otherwise they wait for
  // the same processes, the oldest first.
  std::vector<const JudgedSuspect*> suspects;
  std::vector<uint32_t> circle;  // for which process each waits behind the next; empty: no circle
  std::vector<std::pair<const JudgedSuspect*, uint32_t>> followers;  // with the process that each waits for
};

// The processes that the others wait for; empty: it is not known whom.
std::vector<uint32_t> CulpritsOf(const JudgedSuspect& s);

class HangJudge {
 public:
  HangJudge(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns)
      : job_(job), now_ns_(now_ns), after_ns_(after_ns) {}

  void Add(std::vector<HangSuspect> suspects);
  // A wait for a rank that waits in another suspect is left to that one.
  std::vector<JudgedHang> Judge();

  // As HangsOf has it. Valid after Judge.
  const std::set<uint32_t>& held_back() const { return held_back_; }

 private:
  const model::ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }
  uint64_t AskAfterNs() const;
  void JudgeOne(size_t index);

  // --- what explains a wait
  std::vector<uint32_t> HaltedThatOthersWaitFor(const JudgedSuspect& s) const;
  bool EndedAfterTheHang(const JudgedSuspect& s, uint32_t process,
                         const model::ProcessCondition::Halt& halt) const;
  uint64_t LastHaltOfMissing(const JudgedSuspect& s) const;
  bool NobodyWorksOnIt(JudgedSuspect& s, size_t index);
  bool NothingExplainsIt(JudgedSuspect& s, size_t index);
  const LaunchedBefore& Before(uint32_t process, LaunchOf from);

  // --- what is one hang
  // `waits_behind`: by suspect, those that wait behind it, and the process for which they do.
  using Reverse = std::vector<std::vector<WaitsBehind>>;
  void FollowBack(const Reverse& waits_behind, const std::vector<size_t>& from, JudgedHang& hang,
                  std::vector<bool>& seen) const;
  std::vector<size_t> CircleFrom(size_t start) const;
  void AddHang(JudgedHang hang, std::vector<JudgedHang>& hangs) const;

  // --- which suspect waits behind which
  void NoteWait(const HangParty& party, size_t index);
  void AddBehind(size_t index, uint32_t process, uint64_t plan, JudgedSuspect& s) const;
  bool AddBehind(size_t index, uint32_t process, const LaunchedBefore& launched, JudgedSuspect& s) const;

  const model::JobModel& job_;
  const uint64_t now_ns_;
  const uint64_t after_ns_;
  std::set<uint32_t> held_back_;
  std::vector<JudgedSuspect> suspects_;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, std::vector<size_t>> waits_in_;  // process, plan
  std::map<uint32_t, std::vector<std::pair<uint64_t, size_t>>> replays_of_;  // process: correlation, suspect
  std::map<std::pair<uint32_t, LaunchOf>, LaunchedBefore> before_;           // process
};

}  // namespace gpuprobe::analysis
