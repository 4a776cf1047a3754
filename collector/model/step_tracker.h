// The steps of one process, found in its operations as they come, and statistics of where their time went.
//
// Separate from ProcessModel, which joins records: this reads operations in launch order only. A step is a
// run of launches. On the device's timeline it lasts from the end of the last operation launched before it to
// the end of the last one launched in it, so that steps tile the time and their parts add up; operations
// between two steps (an evaluation, initialisation) belong to none. Memory: what was launched since the last
// step that is complete, the last kKept records, and statistics. Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/communication_timing.h"
#include "collector/model/distribution.h"
#include "collector/model/level_peaks.h"
#include "collector/model/lost_operations.h"
#include "collector/model/phase_inference.h"
#include "collector/model/records.h"
#include "collector/model/steady_runs.h"
#include "collector/model/step_blocks.h"
#include "collector/model/step_finder.h"
#include "collector/model/step_marker.h"
#include "collector/model/step_operation.h"
#include "collector/model/step_record.h"
#include "collector/model/step_timeline.h"
#include "collector/model/step_work.h"

namespace gpuprobe::model {

// Over the complete steps after the warm-up; where these are too few, also over the kept ones that were
// restored (`estimated`).
struct StepStatistics {
  static constexpr size_t kExactLimit = 512;
  Distribution total_ns{kExactLimit};
  Distribution compute_ns{kExactLimit};
  Distribution comm_ns{kExactLimit};
  Distribution exposed_comm_ns{kExactLimit};
  Distribution overlapped_comm_ns{kExactLimit};
  Distribution copy_ns{kExactLimit};
  Distribution idle_ns{kExactLimit};
  Distribution host_bound_ns{kExactLimit};
  Distribution input_ns{kExactLimit};
  Distribution sync_ns{kExactLimit};
  Distribution launch_gap_ns{kExactLimit};
  Distribution unknown_ns{kExactLimit};
  std::array<Distribution, kStepPhases> phase_ns;
  uint64_t incomplete = 0;  // steps in which records were lost; not in the distributions
  bool estimated = false;
  uint64_t nvtx_phases = 0;  // steps whose phases come from annotations

  StepStatistics();
  void Add(const StepRecord& record, bool nvtx_phases_known);
  void Merge(const StepStatistics& other);
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

class StepTracker {
 public:
  static constexpr size_t kKept = 512;        // records of the last steps
  static constexpr size_t kMaxOpen = 131072;  // operations since the last complete step
  static constexpr size_t kMaxTokens = 65536;
  static constexpr size_t kFirstSearch = 128;  // operations after which steps are first looked for
  static constexpr size_t kMaxSearch = 65536;  // beyond, the older half of the history is given up

  struct Token {
    uint32_t fine = 0;
    uint32_t coarse = 0;
  };
  // `coarse`, `fine`: hashes of what makes two operations equal without, and with, geometry and size.
  Token TokenOf(uint64_t coarse, uint64_t fine);

  // Names the calls that a collective kernel's token stands for, once per token.
  bool KnowsCommunication(uint32_t token) const { return communication_.Knows(token); }
  void NameCommunication(uint32_t token, const CommunicationTiming::Name& name) {
    communication_.SetName(token, name);
  }

  // Before anything else.
  void SetMarker(const StepMarker& marker);
  // The probe says which steps there are, because it records only some: nothing else counts.
  void RecordsSome();
  void AddRecorded(const RecordedStepRecord& step);
  // In launch order.
  void Add(const StepOperation& operation);
  // The host was blocked in a synchronising call.
  void AddBlocked(uint64_t start_ns, uint64_t end_ns);
  // A range closed. `name` may mark a step or a phase; `name_id` stands for it.
  void AddRange(uint64_t id, uint64_t parent, uint64_t start_ns, uint64_t end_ns, uint32_t name_id,
                std::string_view name);
  // Records were lost. `launches`: even those of launches, which otherwise show what is missing; steps that
  // are open now may lack some.
  void NoteLoss(bool launches);
  // The clock of these times was set `by_ns` forward, at some time from `from_ns`, as it was, to `to_ns`, as
  // it is since.
  void NoteClockStep(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns);
  // Host phases of the steps that were completed since the last call.
  std::vector<HostPhases> TakeHostPhases() { return std::exchange(host_phases_, {}); }
  // Completes what can be completed.
  void Finish();

  // The last kKept steps, oldest first.
  const std::deque<StepRecord>& steps() const { return steps_; }
  // Index of the step in steps() that this instant belongs to.
  std::optional<uint64_t> StepAt(uint64_t time_ns) const;
  uint64_t count() const { return counted_; }
  uint64_t warmup_count() const { return warmup_count_; }
  const StepStatistics& statistics() const { return statistics_; }
  // Over the same steps.
  const StepBlocks& blocks() const { return blocks_; }
  StepSource source() const { return source_; }
  // Over the complete steps after the warm-up.
  const CommunicationTiming& communication() const { return communication_; }
  const StepWork& work() const { return work_; }
  // When the steps after the warm-up began.
  const SteadyRuns& steady_runs() const { return steady_runs_; }
  // 0 to 1: the share of steps that are like the usual one (of annotated or marked ones: 1), times n / (n +
  // 1) for n steps, times the share of their operations whose records came. 0 without steps.
  double confidence() const;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h

 private:
  struct StepRange {
    uint64_t start_ns;
    uint64_t end_ns;
    std::string kind;
    // Where only some are recorded, as RecordedStepRecord.
    uint64_t index = 0;
    uint64_t earlier_end_ns = 0;
    uint64_t earlier_launch_ns = 0;
    template <typename Archive>
    void Visit(Archive& archive);
  };
  // A step whose last operation is known, while operations that run in it may still come. Positions count all
  // operations.
  struct Pending {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint32_t lost = 0;          // operations without record
    uint32_t left = 0;          // lost operations that may still be restored
    uint64_t end_error_ns = 0;  // of the restored part
    // Set for the first pending step, once nothing is left to be restored.
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;  // 0: not known yet
    uint64_t previous_launch_ns = 0;
    // Where only some are recorded.
    uint64_t index = 0;
    uint64_t host_end_ns = 0;
    uint64_t earlier_end_ns = 0;
    uint64_t earlier_launch_ns = 0;
    bool after_others = false;  // steps before it were left out
    template <typename Archive>
    void Visit(Archive& archive);
  };
  struct ClockStep {
    uint64_t by_ns = 0;
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
    template <typename Archive>
    void Visit(Archive& archive);
  };
  static constexpr size_t kMaxClockSteps = 64;
  static constexpr size_t kMaxBlocked = 8192;
  static constexpr size_t kMaxPending = 64;   // steps that wait for a usual one, or for the end of a gap
  static constexpr uint64_t kLeastWhole = 3;  // steps from which statistics are made
  static constexpr size_t kMaxStepRanges = 1024;

  // The operations from `begin` to `end` are a step; those before it that belong to no step yet never will.
  void CutStep(uint64_t begin, uint64_t end, const StepRange* range = nullptr);
  void CompleteFirst();
  // Measures it, as if the clock had not been set in it.
  StepRecord Measure(const Pending& step, const std::vector<StepPhase>& phases) const;
  void NoteHostPhases(const Pending& step, const std::vector<StepPhase>& phases);
  // All pending steps but the last `but`, as far as their times are known; `must`: whatever is known.
  void CompletePending(size_t but, bool must);
  // Sets the times of the first pending step.
  void MeasureFirst();
  // Learns the usual step, and uses it to restore what was lost.
  void RestoreLost(bool all);
  void LearnUsual(const Pending* before, const Pending& last);
  // Steps from annotated ranges; all of them, or as far as later launches are known.
  void CutAtRanges(bool all);
  void ChooseRanges(size_t least);
  // Looks for a definition of where steps end, once there is enough history for another try.
  void Search(bool at_end);
  // Applies the definition to the operations not scanned yet; all of it, or as far as clusters are surely
  // over.
  void Scan(bool all);
  // The step's anchors ended before `position`: where, up to `known`, the next step begins.
  uint64_t BeginAfter(uint64_t position, uint64_t known) const;
  // A marker that begins steps may be at `position`.
  void BeginAt(uint64_t position);
  // Everything up to `end` and since the last step is one, with what is between steps before it; or several,
  // whose anchors were lost.
  void EndSegment(uint64_t end);
  void EndStep(uint64_t segment, uint64_t end);
  // Ends of the steps up to `end` if there are several whose anchors were lost; empty if it is one.
  std::vector<uint64_t> EndsOfLost(uint64_t segment, uint64_t end) const;
  uint64_t BeginOfStep(uint64_t segment, uint64_t end) const;
  bool IsUsual(uint64_t begin, uint64_t end) const;
  // A step between two anchors that were seen is shorter than the supposed usual one: there were several in
  // it.
  void ShortenUsual(uint64_t operations);
  const StepOperation& At(uint64_t position) const { return open_[static_cast<size_t>(position - base_)]; }
  uint64_t Next() const { return base_ + open_.size(); }
  void Record(const StepRecord& record, bool nvtx_phases);
  // Adds it to the statistics. `ordinal`: of the step, counting the warm-up.
  void Count(uint64_t ordinal, const StepRecord& record, bool nvtx_phases);
  // Looks among the steps so far, and recounts them where the answer changed.
  void LookForWarmup();
  void EndWarmupSearch();
  void ForgetBefore(uint64_t position);

  uint64_t base_ = 0;                // position of open_.front()
  std::vector<StepOperation> open_;  // since the last step that is complete, in launch order
  uint64_t forgotten_until_ns_ = 0;  // latest end of the operations that are no longer in open_
  uint64_t last_launch_ns_ = 0;      // the latest launch of these
  std::deque<Pending> pending_;
  UsualStep usual_step_;          // once records were lost
  uint64_t begin_error_ns_ = 0;   // of where the next step begins
  uint64_t operations_ = 0;       // of all steps
  uint64_t lost_operations_ = 0;  // of all steps
  bool loss_ = false;             // since the last step
  bool lossy_ = false;            // ever
  StepMarker marker_;
  bool begun_ = false;  // of a marker that begins steps: the first one was seen
  bool some_ = false;   // the probe records only some steps, and says which

  StepSource source_ = StepSource::kNone;
  std::optional<StepDefinition> definition_;
  size_t next_search_ = kFirstSearch;
  uint64_t scanned_ = 0;               // position
  uint64_t segment_ = 0;               // position after the last step
  uint64_t cluster_end_ = 0;           // position after the last anchor since then, 0 if there was none
  uint64_t compared_ = 0;              // steps that were compared with the usual one
  uint64_t usual_ = 0;                 // those that are like it
  std::deque<StepRange> step_ranges_;  // that were not used yet, as they closed
  std::string step_kind_;              // of the ranges that are steps, once chosen

  static constexpr uint8_t kNoMeaning = 255;
  std::vector<uint8_t> range_names_;      // by name: what a range of this name means, 0 if not looked at yet
  std::vector<BlockedInterval> blocked_;  // by start
  std::vector<ClockStep> clock_steps_;
  std::vector<HostPhases> host_phases_;
  PhaseRanges phase_ranges_;

  std::deque<StepRecord> steps_;
  uint64_t next_index_ = 0;
  uint64_t counted_ = 0;
  // While the warm-up may still change: the steps' values if they are not part of it.
  struct EarlyStep {
    bool nvtx_phases = false;
    uint64_t input_ns = 0;
    uint64_t host_bound_ns = 0;
    uint64_t input_phase_ns = 0;
    uint64_t other_phase_ns = 0;
    template <typename Archive>
    void Visit(Archive& archive);
  };
  bool warmup_known_ = false;
  uint64_t warmup_count_ = 0;
  std::vector<EarlyStep> early_;
  uint64_t early_counted_ = 0;  // those already considered for statistics
  StepStatistics statistics_;
  StepBlocks blocks_;
  CommunicationTiming communication_;
  StepWork work_;
  SteadyRuns steady_runs_;

  absl::flat_hash_map<uint64_t, uint32_t> tokens_;
};

}  // namespace gpuprobe::model
