// All processes that report to a collector, and what only a comparison of them shows: who waited for whom in
// a collective.
//
// The only place where two processes meet. The plans of several ranks that are one call are matched
// (call_matcher.h) and compared (rank_comparison.h); calls that ranks issue and that do not end are kept for
// the search for hangs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "collector/model/calls/hang_verdicts.h"
#include "collector/model/calls/issued_calls.h"
#include "collector/model/job/call_matcher.h"
#include "collector/model/job/rank_comparison.h"
#include "collector/model/process/process_model.h"

namespace gpuprobe::model {

class StateWriter;

class JobModel {
 public:
  JobModel();
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
  ProcessModel& AddProcess(const v1::Hello& hello);
  template <typename Archive>
  void VisitNames(Archive& archive);
  void Save(StateWriter& archive, absl::FunctionRef<void()> after_process);
  void OnIssued(const ProcessModel& process, const CollectiveRecord& call);
  uint32_t Intern(const std::string& name);

  std::vector<std::unique_ptr<ProcessModel>> processes_;
  StepMarker step_marker_;
  CallMatcher calls_;
  IssuedCalls issued_;
  HangVerdicts verdicts_;
  RankComparison comparison_;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, uint32_t> name_ids_;
  size_t state_bytes_ = 0;  // of SaveState, the last time
};

}  // namespace gpuprobe::model
