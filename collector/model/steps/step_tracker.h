// The steps of one process, found in its operations as they come, and statistics of where their time went.
//
// Separate from ProcessModel, which joins records: this reads operations in launch order only. A step is a
// run of launches. On the device's timeline it lasts from the end of the last operation launched before it to
// the end of the last one launched in it, so that steps tile the time and their parts add up; operations
// between two steps (an evaluation, initialisation) belong to none. Memory: what was launched since the last
// step that is complete, the last kKept records, and statistics. Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/anchor_cutter.h"
#include "collector/model/steps/communication_timing.h"
#include "collector/model/steps/completed_steps.h"
#include "collector/model/steps/open_operations.h"
#include "collector/model/steps/operation_tokens.h"
#include "collector/model/steps/pending_step.h"
#include "collector/model/steps/range_cutter.h"
#include "collector/model/steps/range_meanings.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_meter.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"
#include "collector/model/steps/step_restorer.h"
#include "collector/model/steps/step_scout.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class StepTracker {
 public:
  static constexpr size_t kKept = CompletedSteps::kKept;  // records of the last steps
  static constexpr size_t kMaxOpen = 131072;              // operations since the last complete step

  using Token = OperationTokens::Token;
  // `coarse`, `fine`: hashes of what makes two operations equal without, and with, geometry and size.
  Token TokenOf(uint64_t coarse, uint64_t fine) { return tokens_.Of(coarse, fine); }

  // Names the calls that a collective kernel's token stands for, once per token.
  bool KnowsCommunication(uint32_t token) const { return communication().Knows(token); }
  void NameCommunication(uint32_t token, const CommunicationTiming::Name& name) {
    completed_.communication().SetName(token, name);
  }

  // Before anything else.
  void SetMarker(const StepMarker& marker);
  // The probe says which steps there are, because it records only some: nothing else counts.
  void RecordsSome();
  void AddRecorded(const RecordedStepRecord& step);
  // What another replay of the same operations learned of their steps, and how many of them are the job's
  // warm-up.
  void KnowWarmup(uint64_t steps) { completed_.KnowWarmup(steps); }
  void Know(const StepDefinition& definition) { anchors_.Adopt(definition, open_.Begin()); }
  // Exchanges everything but the tokens.
  void SwapSteps(StepTracker& other);
  // From now on `placed` has the operations of all steps that are counted, in launch order. Not in a saved
  // state.
  void KeepPlaced() { keeps_placed_ = true; }
  const std::vector<PlacedOperation>& placed() const { return placed_; }
  // From now on the steps that are completed are kept until they are taken. Not in a saved state.
  struct Completed {
    StepRecord record;  // before it was known whether it belongs to the warm-up
    bool annotated = false;
    uint64_t revision = 0;  // revisions() then
  };
  void HandOn() { hands_on_ = true; }
  std::vector<Completed> TakeCompleted() { return std::exchange(completed_since_, {}); }
  size_t completed_since() const { return completed_since_.size(); }
  // From a roll-up, in place of operations.
  void AddCompleted(const Completed& step);
  void FinishCompleted() { completed_.Finish(); }
  // In launch order.
  void Add(const StepOperation& operation);
  // The host was blocked in a synchronising call.
  void AddBlocked(uint64_t start_ns, uint64_t end_ns) { meter_.AddBlocked(start_ns, end_ns); }
  // The host was in a call that allocates or releases memory.
  void AddMemoryCall(uint64_t start_ns, uint64_t end_ns) { meter_.AddMemoryCall(start_ns, end_ns); }
  // The host was in a function of the driver with this name; it was seen at a moment.
  void AddCall(uint64_t start_ns, uint64_t end_ns, uint32_t name) { meter_.AddCall(start_ns, end_ns, name); }
  void AddSample(const HostSample& sample) { meter_.AddSample(sample); }
  // A range closed. `name` may mark a step or a phase; `name_id` stands for it.
  void AddRange(uint64_t id, uint64_t parent, uint64_t start_ns, uint64_t end_ns, uint32_t name_id,
                std::string_view name);
  // Whether steps were found, or would be now. `at_end`: no more will come.
  bool ShowsSteps(bool at_end) const;
  // A step of the process was launched in this time: on this device, too. For one on which nothing shows
  // where steps end.
  void AddStepOfProcess(uint64_t start_ns, uint64_t end_ns) { ranges_.AddMarked(start_ns, end_ns); }
  // Records were lost. `launches`: even those of launches, which otherwise show what is missing; steps that
  // are open now may lack some.
  void NoteLoss(bool launches);
  // The clock of these times was set `by_ns` forward, at some time from `from_ns`, as it was, to `to_ns`, as
  // it is since.
  void NoteClockStep(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
    meter_.NoteClockStep(by_ns, from_ns, to_ns);
  }
  // Host phases of the steps that were completed since the last call.
  std::vector<HostPhases> TakeHostPhases() { return meter_.TakeHostPhases(); }
  // Completes what can be completed. `cut_off`: more was launched, of which nothing came, so that the last
  // step is none if it goes on to the end of what came.
  void Finish(bool cut_off = false);

  // What shows its steps, where that was found only after others had been counted: those that are counted
  // now are not all of them, and only another replay, from the start, counts all.
  const std::optional<StepDefinition>& learned() const { return learned_; }
  // How often the steps counted so far were given up for others.
  uint64_t revisions() const { return revisions_; }

  // See CompletedSteps.
  const std::deque<StepRecord>& steps() const { return completed_.steps(); }
  std::optional<uint64_t> StepAt(uint64_t time_ns) const { return completed_.StepAt(time_ns); }
  uint64_t count() const { return completed_.count(); }
  uint64_t warmup_count() const { return completed_.warmup_count(); }
  const StepStatistics& statistics() const { return completed_.statistics(); }
  const StepBlocks& blocks() const { return completed_.blocks(); }
  // All steps, as columns.
  const StepSeries& series() const { return completed_.series(); }
  const CommunicationTiming& communication() const { return completed_.communication(); }
  const StepWork& work() const { return completed_.work(); }
  const WorkColumns& work_columns() const { return completed_.work_columns(); }
  const SteadyRuns& steady_runs() const { return completed_.steady_runs(); }
  const HostPlaces& host_places() const { return completed_.host_places(); }

  StepSource source() const { return ranges_.chosen() ? ranges_.source() : anchors_.source(); }
  // 0 to 1: the share of steps that are like the usual one (of annotated or marked ones: 1), times n / (n +
  // 1) for n steps, times the share of their operations whose records came. 0 without steps.
  double confidence() const;

 private:
  static constexpr size_t kMaxPending = 64;  // steps that wait for a usual one, or for the end of a gap

  // The operations from `begin` to `end` are a step; those before it that belong to no step yet never will.
  void CutStep(uint64_t begin, uint64_t end, const RangeCutter::StepRange* range = nullptr);
  void CutAtRanges(bool all);
  // Cuts at anchors; looks for them first where they are not known. `at_end`: no more will come.
  void CutAtAnchors(bool at_end);
  // The steps so far were none: begins again, with what is in no step yet.
  void Revise(const StepDefinition& better);
  void RestoreLost(bool all);
  // All pending steps but the last `but`, as far as their times are known; `must`: whatever is known.
  void CompletePending(size_t but, bool must);
  void CompleteFirst();
  // Sets the times of the first pending step.
  void MeasureFirst();
  // What was launched before this is over: a window of time ended, and another one begins.
  void BeginAnewAt(uint64_t launch_ns);
  void ForgetBefore(uint64_t position);
  void Place(uint64_t step, std::span<const StepOperation> operations, std::span<const StepPhase> phases);

  StepMarker marker_;
  std::deque<uint64_t> anew_ns_;  // windows of time begin, of which nothing was added yet
  bool begins_anew_ = false;      // the next step, in such a window
  bool some_ = false;             // the probe records only some steps, and says which
  uint64_t next_index_ = 0;       // then: of the next step, if none is left out
  OpenOperations open_;
  AnchorCutter anchors_;
  StepScout scout_;
  std::optional<StepDefinition> learned_;
  uint64_t revisions_ = 0;
  RangeCutter ranges_;
  RangeMeanings meanings_;
  std::deque<PendingStep> pending_;
  StepRestorer restorer_;
  StepMeter meter_;
  CompletedSteps completed_;
  OperationTokens tokens_;
  uint64_t begin_error_ns_ = 0;   // of where the next step begins
  uint64_t operations_ = 0;       // of all steps
  uint64_t lost_operations_ = 0;  // of all steps
  bool loss_ = false;             // since the last step
  bool lossy_ = false;            // ever
  bool keeps_placed_ = false;
  std::vector<PlacedOperation> placed_;
  bool hands_on_ = false;
  std::vector<Completed> completed_since_;  // the last time that they were taken

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    // Rebuilt: the owner's.
    archive.Members(this, Rebuilt(marker_, keeps_placed_, placed_, hands_on_, completed_since_), anew_ns_,
                    begins_anew_, some_, next_index_, open_, anchors_, scout_, learned_, revisions_, ranges_,
                    meanings_, pending_, restorer_, meter_, completed_, tokens_, begin_error_ns_, operations_,
                    lost_operations_, loss_, lossy_);
    if constexpr (Archive::kReads) {
      archive.Require(IsConsistent());
      if (archive.ok()) return;
      StepTracker fresh;
      fresh.marker_ = marker_;
      fresh.hands_on_ = hands_on_;
      *this = fresh;
    }
  }
  // Whether pending steps and anchors are among the operations; of a loaded state.
  bool IsConsistent() const;
};

}  // namespace gpuprobe::model
