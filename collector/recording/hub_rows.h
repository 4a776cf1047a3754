// Makes the rows of one of a hub's jobs while it is watched: its steps as they come, and a report of the job
// so far now and then, whose findings become rows.
//
// A report costs time in proportion to the job's size, so they are made at least 50 times as far apart as the
// processor time that one takes.
#pragma once

#include <chrono>
#include <utility>

#include "collector/analysis/build_report.h"
#include "collector/clickhouse/job_rows.h"
#include "collector/recording/whole_job_watch.h"

namespace gpuprobe::recording {

class HubRows : public JobFollower {
 public:
  static constexpr std::chrono::seconds kJudgeEvery{10};
  static constexpr int kJudgingInterval = 50;

  HubRows(clickhouse::JobRows::Facts facts, analysis::ReportInput input, clickhouse::Writer& writer)
      : rows_(std::move(facts), writer), input_(std::move(input)) {}

  void OnBatch(const WholeJob& job, const model::ProcessModel& process) override;
  void OnLook(const WholeJob& job) override;
  // After the watch: the job is over, and `report` is of all of it.
  void End(const WholeJob& job, const analysis::Report& report);

 private:
  using Clock = std::chrono::steady_clock;
  void Judge(const WholeJob& job);

  clickhouse::JobRows rows_;
  const analysis::ReportInput input_;
  Clock::time_point judge_at_ = Clock::now() + kJudgeEvery;
};

}  // namespace gpuprobe::recording
