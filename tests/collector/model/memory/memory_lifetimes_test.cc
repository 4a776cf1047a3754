#include "collector/model/memory/memory_lifetimes.h"

#include <gtest/gtest.h>

namespace gpuprobe::model {
namespace {

constexpr uint64_t kShortStepNs = 1000;

// Forward, backward and optimizer, each of which launches until 10 ns before the next; then nothing for 100
// ns.
HostPhases StepAt(uint64_t index) {
  const uint64_t begin_ns = (index + 1) * kShortStepNs;
  return {.begin_ns = begin_ns,
          .end_ns = begin_ns + kShortStepNs,
          .changes = {{begin_ns, StepPhase::kForward},
                      {begin_ns + 300, StepPhase::kBackward},
                      {begin_ns + 600, StepPhase::kOptimizer}},
          .last_launch_ns = begin_ns + 900};
}
uint64_t At(uint64_t step, uint64_t ns) { return StepAt(step).begin_ns + ns; }

uint64_t PartOf(const MemoryLifetimes& memory, Lifetime lifetime) {
  return memory.peak().parts[static_cast<size_t>(lifetime)];
}

// A training program: weights, optimizer states in the first step; in each step activations, gradients and
// workspaces.
void TrainFor(MemoryLifetimes& memory, uint64_t steps, uint64_t forgotten_bytes = 0) {
  memory.Add(10, 0x1000, 500, false);
  for (uint64_t i = 0; i < steps; ++i) {
    memory.Add(At(i, 10), 0x2000, 300, false);
    memory.Add(At(i, 20), 0x3000, 50, false);
    memory.Add(At(i, 30), 0x3000, 50, true);
    if (forgotten_bytes > 0) memory.Add(At(i, 40), 0x100000 + i * 0x1000, forgotten_bytes, false);
    memory.Add(At(i, 310), 0x4000, 70, false);
    memory.Add(At(i, 400), 0x2000, 300, true);
    if (i == 0) memory.Add(At(i, 605), 0x5000, 1000, false);
    memory.Add(At(i, 950), 0x4000, 70, true);
    memory.EndStep(StepAt(i));
  }
}

TEST(MemoryLifetimes, TellsWhatTheHighestLevelIsMadeOf) {
  MemoryLifetimes memory;
  TrainFor(memory, 10);
  EXPECT_EQ(memory.steps(), 9u) << "the last one waits for the next";
  EXPECT_EQ(memory.peak().bytes, 500u + 1000 + 300 + 70);
  EXPECT_EQ(memory.peak().step, 1u);
  EXPECT_EQ(memory.peak().time_ns, At(1, 310));
  EXPECT_EQ(PartOf(memory, Lifetime::kBeforeSteps), 500u);
  EXPECT_EQ(PartOf(memory, Lifetime::kFirstSteps), 1000u);
  EXPECT_EQ(PartOf(memory, Lifetime::kFromForward), 300u);
  EXPECT_EQ(PartOf(memory, Lifetime::kFromBackward), 70u);
  EXPECT_TRUE(memory.kept().empty());
  EXPECT_EQ(memory.unknown_frees() + memory.missed_frees() + memory.not_followed(), 0u);
}

// A batch of half a second holds many short steps, and what several threads did in it in little disorder.
TEST(MemoryLifetimes, StepsThatArriveTogetherAreClassedAsThoseThatArriveOneByOne) {
  MemoryLifetimes memory;
  memory.Add(10, 0x1000, 500, false);
  for (uint64_t i = 0; i < 10; ++i) {
    memory.Add(At(i, 310), 0x4000, 70, false);
    memory.Add(At(i, 10), 0x2000, 300, false);
    memory.Add(At(i, 30), 0x3000, 50, true);
    memory.Add(At(i, 20), 0x3000, 50, false);
    if (i == 0) memory.Add(At(i, 605), 0x5000, 1000, false);
    memory.Add(At(i, 400), 0x2000, 300, true);
    memory.Add(At(i, 950), 0x4000, 70, true);
  }
  for (uint64_t i = 0; i < 10; ++i) memory.EndStep(StepAt(i));
  MemoryLifetimes one_by_one;
  TrainFor(one_by_one, 10);
  EXPECT_EQ(memory.peak().parts, one_by_one.peak().parts);
  EXPECT_EQ(memory.peak().time_ns, one_by_one.peak().time_ns);
  EXPECT_EQ(memory.allocations(), one_by_one.allocations());
  EXPECT_EQ(memory.unknown_frees() + memory.missed_frees() + memory.not_followed(), 0u);
}

TEST(MemoryLifetimes, AWorkspaceIsThatOfItsPhase) {
  MemoryLifetimes memory;
  for (uint64_t i = 0; i < 3; ++i) {
    memory.Add(At(i, 20), 0x3000, 50, false);
    memory.Add(At(i, 30), 0x3000, 50, true);
    memory.EndStep(StepAt(i));
  }
  EXPECT_EQ(PartOf(memory, Lifetime::kWithinPhase), 50u);
}

TEST(MemoryLifetimes, WorkspacesOfMatrixProductsAreKnownBySizeAndTime) {
  constexpr uint64_t kWorkspace = 32 << 20;
  MemoryLifetimes memory;
  // A weight of that size, the workspaces of the two threads, and a gradient and an optimizer's state of that
  // size.
  memory.Add(10, 0x1000, kWorkspace, false);
  memory.Add(At(0, 20), 0x2000, kWorkspace, false);
  memory.Add(At(0, 310), 0x3000, kWorkspace, false);
  memory.Add(At(0, 400), 0x4000, kWorkspace, false);
  memory.Add(At(0, 620), 0x5000, kWorkspace, false);
  for (uint64_t i = 0; i < 4; ++i) memory.EndStep(StepAt(i));
  EXPECT_EQ(PartOf(memory, Lifetime::kBeforeSteps), kWorkspace);
  EXPECT_EQ(PartOf(memory, Lifetime::kWorkspace), 2 * kWorkspace);
  EXPECT_EQ(PartOf(memory, Lifetime::kFirstStepsBackward), kWorkspace);
  EXPECT_EQ(PartOf(memory, Lifetime::kFirstSteps), kWorkspace);
}

TEST(MemoryLifetimes, OnlyForwardShowsThatASizeIsThatOfWorkspaces) {
  constexpr uint64_t kWorkspace = 32 << 20;
  MemoryLifetimes memory;
  memory.Add(At(0, 310), 0x3000, kWorkspace, false);
  for (uint64_t i = 0; i < 4; ++i) memory.EndStep(StepAt(i));
  EXPECT_EQ(PartOf(memory, Lifetime::kWorkspace), 0u);
}

TEST(MemoryLifetimes, WhatIsMadeInEveryStepAndNeverFreedIsCountedBySizeAndPhase) {
  MemoryLifetimes memory;
  TrainFor(memory, 23, 4096);
  ASSERT_EQ(memory.kept().size(), 1u);
  const auto& [size, kept] = *memory.kept().begin();
  EXPECT_EQ(size, MemoryLifetimes::Size(4096, StepPhase::kForward));
  EXPECT_EQ(memory.later_steps(), 22 - MemoryLifetimes::kFirst);
  EXPECT_EQ(kept.allocations, memory.later_steps());
  EXPECT_EQ(kept.bytes, 4096 * memory.later_steps());
  EXPECT_EQ(kept.steps, memory.later_steps());
}

TEST(MemoryLifetimes, WhatIsFreedSomeStepsLaterDoesNotGrow) {
  MemoryLifetimes memory;
  for (uint64_t i = 0; i < 40; ++i) {
    memory.Add(At(i, 10), 0x2000 + i, 300, false);
    if (i >= 5) memory.Add(At(i, 20), 0x2000 + i - 5, 300, true);
    memory.EndStep(StepAt(i));
  }
  ASSERT_EQ(memory.kept().size(), 1u);
  EXPECT_EQ(memory.kept().begin()->second.allocations, 5u);
}

TEST(MemoryLifetimes, AFreeThatWasLostIsNoticedWhenTheAddressIsUsedAgain) {
  MemoryLifetimes memory;
  for (uint64_t i = 0; i < 10; ++i) {
    memory.Add(At(i, 10), 0x2000, 300, false);
    if (i != 5) memory.Add(At(i, 400), 0x2000, 300, true);
    memory.EndStep(StepAt(i));
  }
  EXPECT_EQ(memory.missed_frees(), 1u);
  EXPECT_EQ(memory.peak().bytes, 300u);
  EXPECT_EQ(memory.kept().begin()->second.allocations, 0u);
}

TEST(MemoryLifetimes, EventsOfSeveralThreadsComeInAnyOrder) {
  MemoryLifetimes memory;
  for (uint64_t i = 0; i < 10; ++i) {
    memory.Add(At(i, 400), 0x2000, 300, true);
    memory.Add(At(i, 10), 0x2000, 300, false);
    memory.EndStep(StepAt(i));
  }
  EXPECT_EQ(memory.peak().bytes, 300u);
  EXPECT_EQ(PartOf(memory, Lifetime::kFromForward), 300u);
  EXPECT_EQ(memory.unknown_frees(), 0u);
}

TEST(MemoryLifetimes, WithoutStepsMemoryIsBoundedAndWhatLivesIsKnownLater) {
  MemoryLifetimes memory;
  uint64_t time_ns = 0;
  for (uint64_t i = 0; i < 2 * MemoryLifetimes::kMaxWaiting; ++i) {
    memory.Add(++time_ns, 0x1000 + i % 8, 10, false);
    memory.Add(++time_ns, 0x1000 + i % 8, 10, true);
  }
  memory.Add(++time_ns, 0x99, 77, false);
  for (uint64_t i = 0; i < 3; ++i) {
    HostPhases step = StepAt(i);
    step.begin_ns += time_ns;
    step.end_ns += time_ns;
    step.last_launch_ns += time_ns;
    for (auto& [at, phase] : step.changes) at += time_ns;
    memory.EndStep(step);
  }
  EXPECT_EQ(memory.peak().bytes, 77u);
  EXPECT_EQ(PartOf(memory, Lifetime::kBeforeSteps), 77u);
}

}  // namespace
}  // namespace gpuprobe::model
