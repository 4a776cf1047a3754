#include "injector/ledgers/physical_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kBytes = 4096;

class PhysicalMemoryTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> Mapped(uint64_t address, uint64_t handle, uint64_t time_ns) {
    std::vector<uint64_t> ended;
    memory_.Mapped(address, kBytes, handle, time_ns, [&](uint64_t gone) { ended.push_back(gone); });
    return ended;
  }
  std::vector<uint64_t> Unmapped(uint64_t address, uint64_t bytes, uint64_t began_ns) {
    std::vector<uint64_t> ended;
    memory_.Unmapped(address, bytes, began_ns, [&](uint64_t gone) { ended.push_back(gone); });
    return ended;
  }
  PhysicalMemory memory_;
};

TEST_F(PhysicalMemoryTest, LivesUntilItsLastReleaseAndUnmap) {
  EXPECT_TRUE(memory_.Created(0x99, 10));
  EXPECT_TRUE(Mapped(0x10000, 0x99, 20).empty());
  EXPECT_FALSE(memory_.Released(0x99, 30)) << "still mapped";
  memory_.Retained(0x99);
  EXPECT_TRUE(Unmapped(0x10000, kBytes, 40).empty()) << "still retained";
  EXPECT_TRUE(memory_.Released(0x99, 50));
  EXPECT_FALSE(memory_.Released(0x99, 60)) << "not known any more";
}

TEST_F(PhysicalMemoryTest, OneUnmapMayEndSeveralHandles) {
  for (uint64_t handle = 1; handle <= 3; ++handle) {
    memory_.Created(handle, 10);
    Mapped(0x10000 + handle * kBytes, handle, 20);
    EXPECT_FALSE(memory_.Released(handle, 30));
  }
  EXPECT_EQ(Unmapped(0x11000, 3 * kBytes, 40), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(PhysicalMemoryTest, WhatWasImportedIsNotFollowed) {
  Mapped(0x90000, 0x1234, 20);
  EXPECT_FALSE(memory_.Released(0x1234, 30));
  EXPECT_TRUE(Unmapped(0x90000, kBytes, 40).empty());
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

TEST_F(PhysicalMemoryTest, ABindingKeepsTheMemoryUntilItIsUndoneOrItsObjectEnds) {
  std::vector<uint64_t> ended;
  const auto note = [&](uint64_t gone) { ended.push_back(gone); };
  memory_.Created(0x77, 5);
  for (uint64_t handle = 1; handle <= 3; ++handle) {
    EXPECT_TRUE(memory_.Created(handle, 10));
    memory_.Bound(0x77, 0, handle * kBytes, handle, 15, note);
    EXPECT_FALSE(memory_.Released(handle, 20)) << "still bound";
  }
  memory_.Bound(0x77, 1, 1 * kBytes, 0x1234, 15, note);  // nobody knows this one
  memory_.Unbound(0x77, 1, 1 * kBytes, 25, note);
  memory_.Unbound(0x77, 0, 9 * kBytes, 25, note);
  EXPECT_TRUE(ended.empty());
  memory_.Unbound(0x77, 0, 2 * kBytes, 25, note);
  EXPECT_EQ(ended, (std::vector<uint64_t>{2}));
  EXPECT_TRUE(memory_.Released(0x77, 30)) << "an object's handle ends like any other";
  memory_.ObjectEnded(0x77, 0, note);
  EXPECT_EQ(ended.size(), 3u);
  memory_.ObjectEnded(0x77, 0, note);
  EXPECT_EQ(ended.size(), 3u);
}

TEST_F(PhysicalMemoryTest, ImportingWhatIsKnownByTheSameHandleIsOneMoreReference) {
  EXPECT_TRUE(memory_.Created(0x99, 10));
  memory_.Imported(0x99, 20);
  EXPECT_FALSE(memory_.Released(0x99, 30));
  EXPECT_TRUE(memory_.Released(0x99, 40));
}

TEST_F(PhysicalMemoryTest, ImportingByAHandleThatIsJustGivenBackEndsWhatHadIt) {
  EXPECT_TRUE(memory_.Created(0x99, 10));
  Mapped(0x10000, 0x99, 15);
  memory_.Imported(0x99, 30);
  Mapped(0x20000, 0x99, 35);
  EXPECT_FALSE(memory_.Released(0x99, 20)) << "the first one is still mapped";
  EXPECT_EQ(Unmapped(0x10000, kBytes, 25), (std::vector<uint64_t>{0x99}))
      << "called before the import returned";
  EXPECT_FALSE(memory_.Released(0x99, 40)) << "what was imported is still mapped";
  EXPECT_EQ(Unmapped(0x20000, kBytes, 50), (std::vector<uint64_t>{0x99}));
}

TEST_F(PhysicalMemoryTest, AnImportThatWasReleasedAgainSaysNothingOfLaterReleases) {
  EXPECT_TRUE(memory_.Created(0x99, 10));
  memory_.Imported(0x99, 30);
  EXPECT_FALSE(memory_.Released(0x99, 35));
  EXPECT_TRUE(memory_.Released(0x99, 20)) << "told late, and the last one";
}

TEST_F(PhysicalMemoryTest, ALateUnbindingIsThatOfWhatWasBoundThereBefore) {
  std::vector<uint64_t> ended;
  const auto note = [&](uint64_t gone) { ended.push_back(gone); };
  memory_.Created(0x77, 5);
  for (uint64_t handle = 1; handle <= 2; ++handle) {
    EXPECT_TRUE(memory_.Created(handle, 10));
    memory_.Bound(0x77, 0, 0, handle, 10 + 20 * handle, note);
    EXPECT_FALSE(memory_.Released(handle, 60));
  }
  EXPECT_EQ(ended, (std::vector<uint64_t>{1})) << "its unbinding is not told yet";
  memory_.Unbound(0x77, 0, 0, 40, note);
  EXPECT_EQ(ended.size(), 1u);
  memory_.Unbound(0x77, 0, 0, 70, note);
  EXPECT_EQ(ended, (std::vector<uint64_t>{1, 2}));
}

TEST_F(PhysicalMemoryTest, TheMemoryAtAnAddress) {
  EXPECT_TRUE(memory_.Created(0x99, 10));
  Mapped(0x10000, 0x99, 20);
  EXPECT_EQ(memory_.HandleAt(0x10000 + kBytes - 1), 0x99u);
  EXPECT_EQ(memory_.HandleAt(0x10000 + kBytes), 0u);
}

// Another thread gave the handle back before, and says so when it is somebody else's.
TEST_F(PhysicalMemoryTest, ALateReleaseIsThatOfTheMemoryThatHadTheHandleBefore) {
  memory_.Created(7, 10);
  memory_.Created(7, 40);
  memory_.Created(7, 60);
  EXPECT_FALSE(memory_.Released(7, 20));
  EXPECT_TRUE(memory_.Released(7, 70));
  EXPECT_FALSE(memory_.Released(7, 50));
  memory_.Created(7, 80);
  EXPECT_TRUE(memory_.Released(7, 90)) << "nothing is owed any more";
}

TEST_F(PhysicalMemoryTest, ALateUnmapIsThatOfWhatWasMappedThereBefore) {
  memory_.Created(1, 10);
  Mapped(0x10000, 1, 20);
  EXPECT_FALSE(memory_.Released(1, 25));
  memory_.Created(3, 26);
  EXPECT_EQ(Mapped(0x10000, 3, 40), (std::vector<uint64_t>{1})) << "its unmapping is not told yet";
  EXPECT_FALSE(memory_.Released(3, 50));
  EXPECT_TRUE(Unmapped(0x10000, kBytes, 30).empty());
  EXPECT_EQ(Unmapped(0x10000, kBytes, 60), (std::vector<uint64_t>{3}));
}

// What kept the memory was its binding to an object, which another thread ended: the handle is given out
// again before that thread says so.
TEST_F(PhysicalMemoryTest, AnImportMayTakeTheHandleOfMemoryThatEndedWithItsObject) {
  for (const uint64_t began_ns : {40, 0}) {
    std::vector<uint64_t> ended;
    const auto note = [&](uint64_t gone) { ended.push_back(gone); };
    memory_.Created(0x62, 10);
    memory_.Bound(0x59, 0, 0, 0x62, 20, note);
    EXPECT_FALSE(memory_.Released(0x62, 30));
    memory_.Imported(0x62, 50);
    Mapped(0x10000, 0x62, 60);
    memory_.ObjectEnded(0x59, began_ns, note);
    EXPECT_EQ(ended, std::vector<uint64_t>{0x62}) << began_ns;
    EXPECT_TRUE(Unmapped(0x10000, kBytes, 70).empty());
    EXPECT_TRUE(memory_.Released(0x62, 80)) << "the imported one";
  }
}

TEST_F(PhysicalMemoryTest, FollowsHundredsOfThousandsOfHandles) {
  constexpr uint64_t kHandles = 300'000;
  for (uint64_t handle = 1; handle <= kHandles; ++handle) {
    ASSERT_TRUE(memory_.Created(handle, handle));
    Mapped(handle * kBytes, handle, handle);
    ASSERT_FALSE(memory_.Released(handle, handle));
  }
  for (uint64_t handle = 1; handle <= kHandles; ++handle) {
    ASSERT_EQ(Unmapped(handle * kBytes, kBytes, 2 * kHandles), (std::vector<uint64_t>{handle}));
  }
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 0u);
}

TEST_F(PhysicalMemoryTest, WhatFindsNoPlaceSaysSo) {
  for (uint64_t handle = 1; handle <= PhysicalMemory::kMaxHandles; ++handle)
    ASSERT_TRUE(memory_.Created(handle, handle));
  EXPECT_FALSE(memory_.Created(PhysicalMemory::kMaxHandles + 1, 1));
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 1u);
}

}  // namespace
}  // namespace gpuprobe::injector
