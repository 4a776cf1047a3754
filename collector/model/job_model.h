// All processes that report to a collector, and what only a comparison of them shows: who waited for whom in
// a collective.
//
// Separate from ProcessModel because it is the only place where two processes meet. The ranks of one call are
// matched by (communicator hash, sequence number, number of the replay). The shortest kernel among them is
// about the transfer alone, since that rank came last; what the others took longer is waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collector/model/hang_verdicts.h"
#include "collector/model/issued_calls.h"
#include "collector/model/process_model.h"
#include "collector/model/rank_comparison.h"

namespace gpuprobe::model {

class JobModel {
 public:
  // Calls that some of their ranks have not reported yet, and the ranks that have reported them.
  static constexpr size_t kMaxWaitingCalls = 65536;
  static constexpr size_t kMaxWaitingRanks = size_t{1} << 20;

  // Applies to every process that joins from now on.
  void SetStepMarker(const StepMarker& marker) { step_marker_ = marker; }
  const StepMarker& step_marker() const { return step_marker_; }
  // A process said hello. Returns its model: the same pid and start time on the same host is the same
  // process, unless it runs another program image by now (Hello.instance).
  ProcessModel& Join(const v1::Hello& hello);
  // The process that sends this Hello; nullptr if it is new.
  ProcessModel* Find(const v1::Hello& hello) const;
  // Settles everything, marks processes that never said goodbye, and compares what is left. `goes_on`: see
  // ProcessModel.
  void Finish(bool goes_on = false);

  // Everything that is known so far, as bytes from which LoadState makes a model that goes on exactly like
  // this one. Linear in the model's size: some megabytes after days.
  std::string SaveState();
  // The same in parts, so that a thousand ranks' are never in memory at once.
  void SaveState(absl::FunctionRef<void(std::string_view)> part);
  // Replaces what is known. DataLoss if the bytes are not a saved state; the model is empty then.
  absl::Status LoadState(std::string_view bytes);

  const std::vector<std::unique_ptr<ProcessModel>>& processes() const { return processes_; }
  // Applies what was reported about a hang while the job ran.
  void ApplyVerdict(const v1::HangVerdict& verdict) { verdicts_.Apply(verdict); }
  const HangVerdicts& verdicts() const { return verdicts_; }
  const IssuedCalls& issued() const { return issued_; }
  const RankComparison& comparison() const { return comparison_; }
  // Name of an operation or data type in `issued`: one id per name, whatever the processes call it.
  const std::string& Name(uint32_t id) const { return names_[id]; }

 private:
  static constexpr uint32_t kMaxNames = 65536;
  struct Call {
    int32_t comm_ranks = 0;
    std::vector<bool> present;  // by rank of the communicator
    std::vector<RankComparison::Participant> participants;
    std::vector<uint32_t> lost;  // processes that took part, at times that are not known
  };
  // Communicator hash, sequence, replay, 0. For a send and its receive: the ordinal of the transfer instead
  // of the sequence, and the sender's rank in the communicator << 32 | the receiver's.
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;

  ProcessModel& AddProcess(const v1::Hello& hello);
  template <typename Archive>
  void VisitCalls(Archive& archive);
  template <typename Archive>
  void VisitNames(Archive& archive);
  void OnIssued(const ProcessModel& process, const CollectiveRecord& call);
  void OnPlan(uint32_t index, const SettledPlan& plan);
  uint32_t Intern(const std::string& name);
  void Close(const Key& key, Call& call);

  std::vector<std::unique_ptr<ProcessModel>> processes_;
  StepMarker step_marker_;
  absl::flat_hash_map<Key, Call> calls_;
  std::deque<Key> order_;
  size_t waiting_ = 0;  // participants in calls_
  IssuedCalls issued_;
  HangVerdicts verdicts_;
  RankComparison comparison_;
  std::vector<std::string> names_{""};
  absl::flat_hash_map<std::string, uint32_t> name_ids_{{"", 0}};
};

}  // namespace gpuprobe::model
