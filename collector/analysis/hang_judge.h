// The judge of suspects: decides which of the waits that the producers found are hangs.
//
// Example: ranks 0 to 2 wait in an AllReduce that rank 3 has not issued. If rank 3 has launched nothing, read
// and written nothing and completed nothing for `after_ns`, the wait is a hang. If rank 3 itself waits in a
// broadcast on another communicator, the AllReduce is `behind` that suspect, and only the broadcast is
// reported.
//
// Pure: the time is a parameter.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/analysis/hang_suspect.h"

namespace gpuprobe::analysis {

// A suspect as the judge left it.
struct JudgedSuspect {
  HangSuspect what;
  bool eligible = false;         // nothing explains the wait
  bool earlier_work = false;     // work launched before it is not known to have ended
  std::vector<size_t> behind;    // other suspects that one of its processes waits in
  std::vector<uint32_t> halted;  // its processes that cannot run, and made the others wait for the limit
  uint64_t now_ns = 0;
  uint64_t since_ns = UINT64_MAX;
  uint64_t newest_ns = 0;  // when the last rank issued it
  bool all_issued() const { return what.missing.empty() && what.launched_nothing.empty(); }
};

class HangJudge {
 public:
  HangJudge(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns)
      : job_(job), now_ns_(now_ns), after_ns_(after_ns) {}

  void Add(std::vector<HangSuspect> suspects);
  // The suspects that are hangs. A wait for a rank that waits in another suspect is left to that one; in a
  // circle, all are hangs.
  std::vector<const JudgedSuspect*> Judge();

  // As HangsOf has it. Valid after Judge.
  const std::set<uint32_t>& held_back() const { return held_back_; }

 private:
  const model::ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }
  uint64_t AskAfterNs() const;
  void JudgeOne(size_t index);

  // --- what explains a wait
  std::vector<uint32_t> HaltedThatOthersWaitFor(const JudgedSuspect& s) const;
  uint64_t LastHaltOfMissing(const JudgedSuspect& s) const;
  bool NobodyWorksOnIt(JudgedSuspect& s, size_t index);
  bool NothingExplainsIt(JudgedSuspect& s, size_t index);
  const LaunchedBefore& Before(uint32_t process, LaunchOf from);

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
