#include "injector/ledgers/graph_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace gpuprobe::injector {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kGraph = 0x100;
constexpr uint64_t kExec = 0x200;

class GraphMemoryTest : public ::testing::Test {
 protected:
  std::vector<std::string> Launch(uint64_t exec = kExec) {
    std::vector<std::string> told;
    memory_->Launched(
        exec,
        [&](const GraphMemory::Own& own) {
          told.push_back("own " + std::to_string(own.bytes) + " at " + std::to_string(own.address) + " on " +
                         std::to_string(own.device));
        },
        [&](uint64_t address, uint64_t bytes, int32_t) {
          told.push_back("allocated " + std::to_string(bytes) + " at " + std::to_string(address));
        },
        [&](uint64_t address) { told.push_back("released " + std::to_string(address)); });
    return told;
  }
  uint64_t Ended(uint64_t exec = kExec) {
    uint64_t bytes = 0;
    memory_->ExecEnded(exec, [&](const GraphMemory::Own& own) { bytes += own.bytes; });
    return bytes;
  }
  std::unique_ptr<GraphMemory> memory_ = std::make_unique<GraphMemory>();
};

TEST_F(GraphMemoryTest, WhatAGraphReleasesItselfIsTheUnionOfItsAddresses) {
  memory_->Allocates(kGraph, 1000, 100, 0);
  memory_->Allocates(kGraph, 5000, 10, 0);
  memory_->Releases(kGraph, 1000);
  memory_->Allocates(kGraph, 1000, 80, 0);  // there again
  memory_->Releases(kGraph, 1000);
  memory_->Releases(kGraph, 5000);
  memory_->Instantiated(kGraph, kExec);
  memory_->GraphEnded(kGraph);  // the executable graph has its own life
  EXPECT_THAT(Launch(), ElementsAre("own 110 at 1000 on 0"));
  EXPECT_THAT(Launch(), IsEmpty()) << "it has it already";
  EXPECT_EQ(Ended(), 110u);
  EXPECT_THAT(Launch(), IsEmpty());
}

TEST_F(GraphMemoryTest, WhatOutlivesALaunchIsAllocatedByEachAndReleasedByAddress) {
  memory_->Allocates(kGraph, 1000, 100, 0);
  memory_->Releases(kGraph, 1000);
  memory_->Allocates(kGraph, 1000, 60, 0);  // lasts, in the place of the first
  memory_->Allocates(kGraph, 9000, 7, 0);
  memory_->Instantiated(kGraph, kExec);
  EXPECT_THAT(Launch(), ElementsAre("own 40 at 1000 on 0", "allocated 60 at 1000", "allocated 7 at 9000"));
  EXPECT_THAT(Launch(), ElementsAre("allocated 60 at 1000", "allocated 7 at 9000"));
  memory_->Releases(kGraph + 1, 9000);
  memory_->Instantiated(kGraph + 1, kExec + 1);
  EXPECT_THAT(Launch(kExec + 1), ElementsAre("released 9000"));
  EXPECT_EQ(Ended(), 40u);
  EXPECT_EQ(Ended(kExec + 1), 0u);
}

// The child releases what its parent allocated before, and the parent what the child left.
TEST_F(GraphMemoryTest, AChildsNodesAreItsParentsWhenItWasMoved) {
  constexpr uint64_t kChild = 0x300;
  memory_->Allocates(kChild, 1000, 100, 0);
  memory_->Releases(kChild, 1000);
  memory_->Releases(kChild, 7000);
  memory_->Allocates(kChild, 3000, 30, 0);
  memory_->Allocates(kGraph, 7000, 70, 0);
  memory_->Allocates(kGraph, 9000, 9, 0);
  memory_->Moved(kGraph, kChild);
  memory_->Releases(kGraph, 3000);
  memory_->Instantiated(kGraph, kExec);
  EXPECT_THAT(Launch(), ElementsAre("own 200 at 1000 on 0", "allocated 9 at 9000"));
  memory_->Instantiated(kChild, kExec + 1);
  EXPECT_THAT(Launch(kExec + 1), IsEmpty()) << "it has nothing by itself any more";
  memory_->GraphEnded(kGraph);
  EXPECT_EQ(Ended(), 200u);
}

TEST_F(GraphMemoryTest, DevicesHaveTheirOwn) {
  memory_->Allocates(kGraph, 1000, 100, 0);
  memory_->Allocates(kGraph, 2000, 30, 3);
  memory_->Releases(kGraph, 2000);
  memory_->Releases(kGraph, 1000);
  memory_->Instantiated(kGraph, kExec);
  EXPECT_EQ(memory_->AskedBy(kExec).bytes, 130u);
  EXPECT_THAT(Launch(), ElementsAre("own 100 at 1000 on 0", "own 30 at 2000 on 3"));
  EXPECT_EQ(memory_->AskedBy(kExec).bytes, 0u);
}

TEST_F(GraphMemoryTest, HandlesAreUsedAgain) {
  for (uint64_t i = 1; i <= 100'000; ++i) {
    memory_->Allocates(kGraph, 1000, i, 0);
    memory_->Releases(kGraph, 1000);
    memory_->Instantiated(kGraph, kExec);
    memory_->GraphEnded(kGraph);
    ASSERT_THAT(Launch(), ElementsAre("own " + std::to_string(i) + " at 1000 on 0"));
    if (i % 2 != 0) continue;  // the handle comes again without a word
    ASSERT_EQ(Ended(), i);
  }
}

}  // namespace
}  // namespace gpuprobe::injector
