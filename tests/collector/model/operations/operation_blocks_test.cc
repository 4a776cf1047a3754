// Operations stay in their order, whatever is taken over and erased.
#include "collector/model/operations/operation_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gpuprobe::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint64_t> In(OperationBlocks& operations) {
  std::vector<uint64_t> out;
  operations.ForEach([&out](const Operation& operation) { out.push_back(operation.correlation); });
  EXPECT_EQ(out.size(), operations.size());
  return out;
}

void Add(OperationBlocks& operations, uint64_t first, uint64_t last) {
  for (uint64_t correlation = first; correlation <= last; ++correlation)
    operations.Next() = {.correlation = correlation};
}

TEST(OperationBlocks, WhatIsTakenIsBehindWhatWasThereAndBeforeWhatComes) {
  OperationBlocks operations;
  OperationBlocks others;
  Add(operations, 1, 2);
  Add(others, 3, 4);
  operations.Take(others);
  EXPECT_THAT(In(others), IsEmpty());
  Add(operations, 5, 5);
  Add(others, 6, 6);
  EXPECT_THAT(In(operations), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(In(others), ElementsAre(6));
}

TEST(OperationBlocks, PlacesLeadToTheirOperations) {
  OperationBlocks operations;
  OperationBlocks others;
  Add(operations, 1, 300);
  Add(others, 301, 600);
  operations.Take(others);
  uint64_t next = 1;
  operations.ForEachPlace([&](uint32_t place, const Operation& operation) {
    EXPECT_EQ(operation.correlation, next++);
    EXPECT_EQ(&operations.At(place), &operation);
  });
  EXPECT_EQ(next, 601u);
}

TEST(OperationBlocks, WhatIsErasedWasSeenOnceInItsOrder) {
  OperationBlocks operations;
  Add(operations, 1, 1000);
  std::vector<uint64_t> seen;
  operations.EraseIf([&](const Operation& operation) {
    seen.push_back(operation.correlation);
    return operation.correlation % 400 != 0;
  });
  ASSERT_EQ(seen.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_THAT(In(operations), ElementsAre(400, 800));
  EXPECT_TRUE(operations.Any([](const Operation& operation) { return operation.correlation == 800; }));
  EXPECT_FALSE(operations.Any([](const Operation& operation) { return operation.correlation == 799; }));
  operations.Clear();
  EXPECT_TRUE(operations.empty());
}

// A block that was used before is empty, and each operation is as if nothing had been there.
TEST(OperationBlocks, BlocksThatAreUsedAgainAreEmpty) {
  OperationBlocks operations;
  Add(operations, 1, 200);
  operations.Clear();
  EXPECT_THAT(In(operations), IsEmpty());
  Add(operations, 7, 8);
  EXPECT_THAT(In(operations), ElementsAre(7, 8));
}

}  // namespace
}  // namespace gpuprobe::model
