// The table of findings: what the tool can conclude, when, and how bad that is.
//
// Separate from findings.h's callers because report, help and documentation derive from this one list. Every
// rule is a pure function of the report: it appends what it finds and leaves id and severity to the table.
// Rules of one subject share a file, findings_<subject>.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collector/analysis/report.h"

namespace gpuprobe::analysis {

struct FindingRule {
  const char* id;
  Severity severity;
  std::string holds_when;  // for people: the condition, with its thresholds (thresholds.h)
  void (*find)(const Report& report, std::vector<Finding>& out);  // nullptr: from the other findings
};

// The findings that the rest of the report proves, worst first.
std::vector<Finding> FindingsOf(const Report& report);

// In the order in which findings without a measurable cost are listed.
std::span<const FindingRule> FindingRules();

// For people: what the conditions of stragglers mean by "holds up the others".
std::string HoldsUpText();

// findings_hangs.cc
void HangMismatch(const Report& report, std::vector<Finding>& out);
void HangMissingRank(const Report& report, std::vector<Finding>& out);
void HangAllIssued(const Report& report, std::vector<Finding>& out);
void RankDied(const Report& report, std::vector<Finding>& out);
void HangOver(const Report& report, std::vector<Finding>& out);
void RankStopped(const Report& report, std::vector<Finding>& out);

// findings_memory.cc
void OutOfMemory(const Report& report, std::vector<Finding>& out);
void AllocationFailed(const Report& report, std::vector<Finding>& out);
void MemoryLeak(const Report& report, std::vector<Finding>& out);
void MemoryPressure(const Report& report, std::vector<Finding>& out);
void Fragmentation(const Report& report, std::vector<Finding>& out);
void PoolFootprint(const Report& report, std::vector<Finding>& out);

// findings_ranks.cc
void StragglerSlowGpu(const Report& report, std::vector<Finding>& out);
void StragglerMoreWork(const Report& report, std::vector<Finding>& out);
void StragglerLateLaunch(const Report& report, std::vector<Finding>& out);
void StragglerLateInput(const Report& report, std::vector<Finding>& out);
void StragglerSlowCopies(const Report& report, std::vector<Finding>& out);
void StragglerUnexplained(const Report& report, std::vector<Finding>& out);
void StragglerIntermittent(const Report& report, std::vector<Finding>& out);
void TwoSpeeds(const Report& report, std::vector<Finding>& out);
void Imbalance(const Report& report, std::vector<Finding>& out);

// findings_long_steps.cc
void LongSteps(const Report& report, std::vector<Finding>& out);

// findings_communication.cc
void SlowNetwork(const Report& report, std::vector<Finding>& out);
void BucketTooLarge(const Report& report, std::vector<Finding>& out);
void BucketTooSmall(const Report& report, std::vector<Finding>& out);
void CommunicationUnheard(const Report& report, std::vector<Finding>& out);
void PipelineBubble(const Report& report, std::vector<Finding>& out);
void CommunicationBound(const Report& report, std::vector<Finding>& out);
void PoorOverlap(const Report& report, std::vector<Finding>& out);

// findings_steps.cc
void InputBound(const Report& report, std::vector<Finding>& out);
void LaunchBound(const Report& report, std::vector<Finding>& out);
void SyncInLoop(const Report& report, std::vector<Finding>& out);
void PageableCopies(const Report& report, std::vector<Finding>& out);
void LowMfu(const Report& report, std::vector<Finding>& out);
void WarmupDominated(const Report& report, std::vector<Finding>& out);
void SharedDevices(const Report& report, std::vector<Finding>& out);
void MixedHardware(const Report& report, std::vector<Finding>& out);
// For a report without a warning or an error.
void Healthy(const Report& report, std::vector<Finding>& out);

// For reports to which only one of several hosts reported.
inline constexpr char kTogether[] =
    "copy the rank-*.gpr files from all hosts' run directories into one directory, and run gpuprobe report "
    "on it.";

// findings_options.cc
void OptionsMistaken(const Report& report, std::vector<Finding>& out);

// findings_capture.cc
void RankCutOff(const Report& report, std::vector<Finding>& out);
void RecordsLost(const Report& report, std::vector<Finding>& out);
void RanksMissing(const Report& report, std::vector<Finding>& out);
void DuplicateRanks(const Report& report, std::vector<Finding>& out);
void CaptureIncomplete(const Report& report, std::vector<Finding>& out);
void CostlyCapture(const Report& report, std::vector<Finding>& out);
void GraphNodes(const Report& report, std::vector<Finding>& out);
void NoStepRecorded(const Report& report, std::vector<Finding>& out);
void ClockStepped(const Report& report, std::vector<Finding>& out);
void DeviceClock(const Report& report, std::vector<Finding>& out);
void DetailDropped(const Report& report, std::vector<Finding>& out);

}  // namespace gpuprobe::analysis
