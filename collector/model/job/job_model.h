// All processes that report to a collector, and what only a comparison of them shows: who waited for whom in
// a collective.
//
// The only place where two processes, or two GPUs of one, meet. The plans of several ranks that are one call
// are matched (call_matcher.h) and compared (rank_comparison.h); calls that ranks issue and that do not end
// are kept for the search for hangs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collector/model/calls/call_trace.h"
#include "collector/model/calls/hang_verdicts.h"
#include "collector/model/calls/issued_calls.h"
#include "collector/model/job/call_matcher.h"
#include "collector/model/job/member.h"
#include "collector/model/job/rank_comparison.h"
#include "collector/model/process/process_model.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class JobModel {
 public:
  // Host, process id, start and program image: what tells a job's processes apart.
  using ProcessKey = std::tuple<std::string, uint32_t, uint64_t, uint64_t>;
  static ProcessKey KeyOf(const v1::Hello& hello);

  JobModel();
  // Applies to every process that joins from now on.
  void SetStepMarker(const StepMarker& marker) { step_marker_ = marker; }
  const StepMarker& step_marker() const { return step_marker_; }
  // See StepTracker::KeepPlaced; for every process that joins from now on.
  void KeepPlaced() { keeps_placed_ = true; }
  // Every process that joins from now on is rolled up, too: from after the batch whose number is in `done`.
  void KeepRollUps(std::map<ProcessKey, uint64_t> done = {}) {
    rolls_up_ = true;
    rolled_up_ = std::move(done);
  }
  void KeepNoRollUps() { rolls_up_ = false; }
  // ProcessModel::TakeRollUp, with what the process counts.
  v1::Batch RollUp(ProcessModel& process) const;
  // All that is known of it, as it stands behind its last roll-up; without a state if that is too large for a
  // frame.
  v1::Batch WholeState(ProcessModel& process) const;
  // Of a job with more ranks, the states in roll-ups are left out, which would be gigabytes together; those
  // of so many processes are loaded before its report (LoadDetail).
  static constexpr int kMostInDetail = 1024;
  bool LeavesStatesOut() const;
  // The processes whose states are worth most: those that others waited for, or wait for now, and every n-th
  // of the others.
  std::vector<ProcessModel*> WorthDetail() const;
  // `roll_ups`: of this process, from its last whole state on.
  void LoadDetail(ProcessModel& process, const std::vector<v1::Batch>& roll_ups);
  // Hosts with states in their roll-ups that could not be read: another release made them.
  const std::set<std::string>& unread_hosts() const { return unread_hosts_; }
  // A process said hello. Returns its model: the same pid and start time on the same host is the same
  // process, unless it runs another program image by now (Hello.instance).
  ProcessModel& Join(const v1::Hello& hello);
  // The process that sends this Hello; nullptr if it is new.
  ProcessModel* Find(const v1::Hello& hello) const;
  // Settles everything, marks processes that sent no Bye, and compares the remaining calls. `goes_on`: see
  // ProcessModel.
  void Finish(bool goes_on = false);

  // The whole state as bytes, from which LoadState makes a model that continues exactly like this one. Linear
  // in the model's size: some megabytes after days.
  std::string SaveState();
  // The same in parts, so that a thousand ranks' are never in memory at once.
  void SaveState(absl::FunctionRef<void(std::string_view)> part);
  // Replaces what is known. DataLoss if the bytes are not a saved state; the model is empty then.
  absl::Status LoadState(std::string_view bytes);

  // Whether another replay from the start would count steps better: the first guess at a process's steps
  // turned out wrong, or ranks disagree on how many of the first steps are warm-up. At most kReplays times.
  bool LearnedOfSteps() const;
  static constexpr int kReplays = 2;
  // Forgets everything but the learned steps, for another replay.
  void BeginAgain();

  const std::vector<std::unique_ptr<ProcessModel>>& processes() const { return processes_; }
  // The members by whose numbers comparison() counts.
  const Members& members() const { return members_; }
  // The process itself. `process`: its place in processes().
  const Member& FirstMember(uint32_t process) const { return members_[members_of_[process].front()]; }
  // Without devices that hardly count, by process and device.
  Members ReportedMembers() const;
  // Applies what was reported about a hang while the job ran.
  void ApplyVerdict(const v1::HangVerdict& verdict) { verdicts_.Apply(verdict); }
  const HangVerdicts& verdicts() const { return verdicts_; }
  // The collector had ranks record in full, at level calls.
  // False: it is known, or refused.
  bool ApplyRaise(const v1::DetailRaise& raise) { return trace_.On(raise); }
  // Of level calls.
  const CallTrace& trace() const { return trace_; }
  // So many calls wait for ranks that have not reported them that these should be read first. `ranks_come`:
  // also those of which nothing has been heard.
  bool ManyCallsWait(bool ranks_come) const;
  const IssuedCalls& issued() const { return issued_; }
  const RankComparison& comparison() const { return comparison_; }
  // Name of an operation or data type in `issued`: one id per name, whatever the processes call it.
  const std::string& Name(uint32_t id) const { return names_[id]; }

 private:
  static constexpr uint32_t kMaxNames = 65536;
  bool StepsWereRevised() const;
  // The longest warm-up of a rank, if others have a shorter one: they waited for it in these steps. Not
  // where that would leave few steps of some rank.
  std::optional<uint64_t> CommonWarmup() const;
  // Forgets everything but the settings and what replays learned.
  void Clear();
  ProcessModel& AddProcess(const v1::Hello& hello);
  void AddMember(uint32_t process, uint32_t place);
  // The number of the member that this device of the process is.
  uint32_t MemberOf(uint32_t process, size_t place);
  static uint32_t StateVersion();
  void LoadProcess(ProcessModel& process, const v1::ProcessState& state);
  // Processes with fewer calls on a communicator than others have, of those with few such: `most` in all.
  std::vector<size_t> Behind(size_t most) const;
  void OnIssued(const ProcessModel& process, const CollectiveRecord& call);
  CallTrace::Place PlaceOf(uint32_t process, const v1::Communicator& comm) const;
  // `before`: what was asked for before, likely the same, and is now.
  uint32_t Intern(const std::string& name, uint32_t& before);

  std::vector<std::unique_ptr<ProcessModel>> processes_;
  std::map<ProcessKey, ProcessModel*> by_key_;
  Members members_;
  std::vector<std::vector<uint32_t>> members_of_;  // by process, then by place
  StepMarker step_marker_;
  bool keeps_placed_ = false;
  bool rolls_up_ = false;
  std::map<ProcessKey, uint64_t> rolled_up_;
  std::set<std::string> unread_hosts_;
  std::map<ProcessKey, DeviceSteps::Definitions> known_steps_;  // by an earlier replay
  std::optional<uint64_t> known_warmup_;
  CallMatcher calls_;
  IssuedCalls issued_;
  HangVerdicts verdicts_;
  CallTrace trace_;
  RankComparison comparison_;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, uint32_t> name_ids_;
  uint32_t last_op_ = 0;  // see Intern
  uint32_t last_datatype_ = 0;
  size_t state_bytes_ = 0;  // of SaveState, the last time

  friend StateAccess;
  // `after_process`: called after each of them was saved or loaded.
  template <typename Archive>
  void Visit(Archive& archive, absl::FunctionRef<void()> after_process);
  template <typename Archive>
  void VisitProcesses(Archive& archive, absl::FunctionRef<void()> after_process);
  template <typename Archive>
  void VisitMembers(Archive& archive);
  // Whether what refers to names, members and processes refers to known ones; of a loaded state.
  bool IsConsistent() const;
};

}  // namespace gpuprobe::model
