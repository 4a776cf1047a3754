// Turns a hang that the judge found into the data of the report: who is at fault, who waits, what follows.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/analysis/hangs/hang_judge.h"
#include "collector/analysis/trust/duplicate_ranks.h"

namespace gpuprobe::analysis {

class HangDescriber {
 public:
  // Both are kept.
  HangDescriber(const model::JobModel& job, const ProcessLabels& labels) : job_(job), labels_(labels) {}

  Hang Describe(const JudgedHang& judged) const;

 private:
  const model::ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }
  void AddCulprits(const JudgedSuspect& s, Hang& hang) const;
  bool IsExtra(const JudgedSuspect& s) const;
  void AddExtra(const JudgedSuspect& s, Hang& hang) const;
  void AddCircle(const JudgedHang& judged, Hang& hang) const;
  void AddFollowers(const JudgedHang& judged, Hang& hang) const;
  std::string PartOf(const JudgedSuspect& s, uint32_t process) const;
  std::string Who(const std::vector<uint32_t>& processes) const;
  void AddRank(const JudgedSuspect& s, uint32_t process, HangRank::State state, Hang& hang) const;
  void AddWaiting(const JudgedSuspect& s, Hang& hang) const;

  const model::JobModel& job_;
  const ProcessLabels& labels_;
};

}  // namespace gpuprobe::analysis
