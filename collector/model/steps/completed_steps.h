// What is kept of the steps that are complete: the records of the last ones, and statistics over those after
// the warm-up.
//
// Which of the first steps are warm-up shows only later. Until then they are kept, so that statistics can be
// made again whenever the answer changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/communication_timing.h"
#include "collector/model/steps/host_places.h"
#include "collector/model/steps/steady_runs.h"
#include "collector/model/steps/step_blocks.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"
#include "collector/model/steps/step_series.h"
#include "collector/model/steps/step_statistics.h"
#include "collector/model/steps/step_work.h"
#include "collector/model/steps/warmup.h"
#include "collector/model/steps/work_columns.h"

namespace gpuprobe::model {

class CompletedSteps {
 public:
  static constexpr size_t kKept = 512;        // records of the last steps
  static constexpr uint64_t kLeastWhole = 3;  // steps from which statistics are made

  // A step's operations, and what was launched after it and runs in it.
  struct Content {
    std::span<const StepOperation> operations;
    size_t own = 0;  // the first ones
    const std::vector<StepPhase>& phases;
    const std::vector<HostShare>& host;
    bool annotated = false;  // phases come from annotations
  };
  void Add(const StepRecord& record, const Content& content);
  // How many of the first steps are warm-up, as another replay of the job found. Before any step.
  void KnowWarmup(uint64_t steps);
  // No more will come.
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
  // All steps.
  const StepSeries& series() const { return series_; }
  // Over the complete steps after the warm-up.
  const CommunicationTiming& communication() const { return communication_; }
  CommunicationTiming& communication() { return communication_; }
  const StepWork& work() const { return work_; }
  // Of the complete steps.
  const WorkColumns& work_columns() const { return work_columns_; }
  // When the steps after the warm-up began.
  const SteadyRuns& steady_runs() const { return steady_runs_; }
  // What the host did while the device was idle for it, over the steps of `statistics`.
  const HostPlaces& host_places() const { return host_places_; }

 private:
  bool IsWarmup() const { return warmup_known_ && counted_ < warmup_count_; }  // the next step
  // A host that is silent in the warm-up compiles; it does not wait for input.
  static void MarkWarmup(StepRecord& step);
  // Adds it to the statistics. `ordinal`: of the step, counting the warm-up.
  void Count(uint64_t ordinal, const StepRecord& record, bool nvtx_phases, std::span<const HostShare> host);
  // Looks among the steps so far, and recounts them where the answer changed.
  void LookForWarmup();
  void EndWarmupSearch();

  std::deque<StepRecord> steps_;
  uint64_t counted_ = 0;
  // While the warm-up may still change: the steps' values if they are not part of it.
  struct EarlyStep {
    bool nvtx_phases = false;
    uint64_t input_ns = 0;
    uint64_t pause_ns = 0;
    uint64_t input_phase_ns = 0;
    uint64_t other_phase_ns = 0;
    std::vector<HostShare> host;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, nvtx_phases, input_ns, pause_ns, input_phase_ns, other_phase_ns, host);
    }
  };
  bool warmup_known_ = false;
  uint64_t warmup_count_ = 0;
  std::vector<EarlyStep> early_;
  uint64_t early_counted_ = 0;  // those already considered for statistics
  bool finished_ = false;
  StepStatistics statistics_;
  StepBlocks blocks_;
  StepSeries series_;
  CommunicationTiming communication_;
  StepWork work_;
  WorkColumns work_columns_;
  SteadyRuns steady_runs_;
  HostPlaces host_places_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, steps_, counted_, warmup_known_, warmup_count_, early_, early_counted_, finished_,
                    statistics_, blocks_, series_, communication_, work_, work_columns_, steady_runs_,
                    host_places_);
    archive.Require(warmup_known_ || (steps_.size() == early_.size() && early_.size() < kWarmupLook &&
                                      warmup_count_ <= early_counted_ && early_counted_ <= early_.size()));
  }
};

}  // namespace gpuprobe::model
