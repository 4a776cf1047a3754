#include "injector/rows/pool_levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "injector/base/losses.h"

namespace gpuprobe::injector {
namespace {

class PoolLevelsTest : public ::testing::Test {
 protected:
  void Note(uint64_t time_ns, uint64_t used, uint64_t reserved, PoolOperation operation = PoolOperation::kUse,
            uint64_t address = 0x10) {
    pools_->Note({.operation = operation,
                  .address = address,
                  .time_ns = time_ns,
                  .used_bytes = used,
                  .reserved_bytes = reserved,
                  .release_threshold_bytes = 7,
                  .device = 2});
  }
  std::vector<PoolLevel> Take() {
    std::vector<PoolLevel> taken;
    pools_->TakeChanged([&](const PoolLevel& level) { taken.push_back(level); });
    EXPECT_EQ(pools_->changed(), 0u);
    return taken;
  }
  std::unique_ptr<PoolLevels> pools_ = std::make_unique<PoolLevels>();
};

TEST_F(PoolLevelsTest, TheLatestLevelAndTheHighestInWhateverOrderTheyCome) {
  Note(30, 5, 64);
  Note(10, 50, 64);
  Note(20, 20, 96);
  Note(40, 6, 32, PoolOperation::kTrim);
  const auto taken = Take();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].pool, 1u);
  EXPECT_EQ(taken[0].device, 2u);
  EXPECT_EQ(taken[0].time_ns, 40u);
  EXPECT_EQ(taken[0].used_bytes, 6u);
  EXPECT_EQ(taken[0].reserved_bytes, 32u);
  EXPECT_EQ(taken[0].peak_used_bytes, 50u);
  EXPECT_EQ(taken[0].peak_used_ns, 10u);
  EXPECT_EQ(taken[0].peak_reserved_bytes, 96u);
  EXPECT_EQ(taken[0].peak_reserved_ns, 20u);
  EXPECT_EQ(taken[0].trims, 1u);
  EXPECT_EQ(taken[0].release_threshold_bytes, 7u);
  EXPECT_TRUE(Take().empty());
  pools_->TellAgain();
  EXPECT_EQ(Take().size(), 1u);
}

TEST_F(PoolLevelsTest, AnAddressThatIsUsedAgainIsAnotherPool) {
  Note(10, 50, 64);
  Note(20, 0, 0, PoolOperation::kDestroy);
  Note(30, 0, 0, PoolOperation::kCreate);
  Note(15, 60, 64);  // late word of the first
  Note(40, 9, 32);
  const auto taken = Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_TRUE(taken[0].destroyed);
  EXPECT_EQ(taken[0].peak_used_bytes, 60u);
  EXPECT_EQ(taken[1].pool, 2u);
  EXPECT_EQ(taken[1].peak_used_bytes, 9u);
  EXPECT_FALSE(taken[1].destroyed);
}

TEST_F(PoolLevelsTest, PoolsThatAreGoneMakeRoom) {
  for (uint64_t i = 1; i <= 10 * PoolLevels::kMaxPools; ++i) {
    Note(i * 10, i, i, PoolOperation::kUse, i * 0x100);
    Note(i * 10 + 1, 0, 0, PoolOperation::kDestroy, i * 0x100);
    ASSERT_EQ(Take().size(), 1u);
  }
  for (uint64_t i = 1; i <= PoolLevels::kMaxPools + 5; ++i)
    Note(1'000'000 + i, 1, 1, PoolOperation::kUse, i * 0x100);
  EXPECT_EQ(Take().size(), PoolLevels::kMaxPools);
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 1u);
}

}  // namespace
}  // namespace gpuprobe::injector
