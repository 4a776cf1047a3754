// Graph nodes keep their plans, and a table that is full forgets the oldest.
#include "injector/capture/nccl/captured_nodes.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpuprobe::injector::nccl {
namespace {

TEST(CapturedNodes, ANodeHasThePlanThatItWasRememberedWith) {
  EXPECT_FALSE(AnyCaptured());
  EXPECT_EQ(PlanOfCaptured(5).plan, 0u);
  RememberCaptured(5, {.plan = 50, .copy = 0});
  RememberCaptured(6, {.plan = 60, .copy = 0});
  EXPECT_TRUE(AnyCaptured());
  EXPECT_EQ(PlanOfCaptured(5).plan, 50u);
  EXPECT_EQ(PlanOfCaptured(6).plan, 60u);
  EXPECT_EQ(PlanOfCaptured(7).plan, 0u);
}

TEST(CapturedNodes, NodeZeroIsNone) {
  RememberCaptured(0, {.plan = 50, .copy = 0});
  EXPECT_EQ(PlanOfCaptured(0).plan, 0u);
  EXPECT_FALSE(AnyCaptured());
}

TEST(CapturedNodes, TheNewestAreKeptWhenThereAreTooMany) {
  constexpr uint64_t kNodes = 20 * uint64_t{kCapturedSets} * kCapturedWays;
  for (uint64_t node = 1; node <= kNodes; ++node) RememberCaptured(node, {.plan = node + 1000, .copy = 0});
  uint64_t kept = 0;
  for (uint64_t node = 1; node <= kNodes; ++node) {
    const uint64_t plan = PlanOfCaptured(node).plan;
    if (plan == 0) continue;
    EXPECT_EQ(plan, node + 1000);
    ++kept;
  }
  EXPECT_LE(kept, uint64_t{kCapturedSets} * kCapturedWays);
  // A graph of some hundred collectives is instantiated right after it was captured.
  for (uint64_t node = kNodes - 500; node <= kNodes; ++node) EXPECT_NE(PlanOfCaptured(node).plan, 0u) << node;
}

TEST(CapturedNodes, ThreadsNeverSeeThePlanOfAnotherNode) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (uint64_t i = 0; i < 50000; ++i) {
        const uint64_t node = 1 + i * 4 + t;
        RememberCaptured(node, {.plan = node, .copy = 0});
        for (const uint64_t asked : {node, node - 4 * (i % 50)}) {
          const uint64_t plan = PlanOfCaptured(asked).plan;
          ASSERT_TRUE(plan == 0 || plan == asked);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
