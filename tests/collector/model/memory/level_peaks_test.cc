#include "collector/model/memory/level_peaks.h"

#include <gtest/gtest.h>

namespace gpuprobe::model {
namespace {

HostPhases StepFrom(uint64_t begin_ns) {
  return {.begin_ns = begin_ns,
          .end_ns = begin_ns + 100,
          .changes = {{begin_ns, StepPhase::kForward},
                      {begin_ns + 40, StepPhase::kBackward},
                      {begin_ns + 80, StepPhase::kOptimizer}}};
}

uint64_t PeakIn(const LevelPeaks& peaks, StepPhase phase) {
  return peaks.phases()[static_cast<size_t>(phase)].peak_bytes;
}

TEST(LevelPeaks, EachPhaseHasItsOwn) {
  LevelPeaks peaks;
  peaks.Add(0, 10);
  for (uint64_t at : {100, 200, 300}) {
    peaks.Add(at + 20, 50);  // in forward,
    peaks.Add(at + 60, 70);  // in backward
    peaks.Add(at + 85, 30);  // in the optimizer
    peaks.Add(at + 99, 10);
    peaks.EndStep(StepFrom(at));
  }
  EXPECT_EQ(peaks.step_peak_bytes().count(), 3);
  EXPECT_EQ(peaks.step_peak_bytes().Summarize().max, 70);
  EXPECT_EQ(PeakIn(peaks, StepPhase::kForward), 50);
  EXPECT_EQ(PeakIn(peaks, StepPhase::kBackward), 70);
  EXPECT_EQ(PeakIn(peaks, StepPhase::kOptimizer), 70) << "what backward left stands until it is given back";
  EXPECT_EQ(peaks.phases()[static_cast<size_t>(StepPhase::kBackward)].steps, 3);
}

TEST(LevelPeaks, TheLevelBeforeAStepCounts) {
  LevelPeaks peaks;
  peaks.Add(0, 10);
  peaks.EndStep(StepFrom(100));
  EXPECT_EQ(peaks.step_peak_bytes().Summarize().max, 10);
}

TEST(LevelPeaks, AStepOfWhichNotAllChangesAreKeptIsLeftOut) {
  LevelPeaks peaks;
  for (uint64_t i = 0; i < LevelPeaks::kMaxChanges + 10; ++i) peaks.Add(100 + i, i);
  peaks.EndStep(StepFrom(100));
  EXPECT_EQ(peaks.step_peak_bytes().count(), 0);
}

}  // namespace
}  // namespace gpuprobe::model
