#include "collector/model/operations/operation_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace gpuprobe::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OperationWindowTest : public ::testing::Test {
 protected:
  void Launch(uint64_t correlation, uint64_t launch_ns = 0, uint32_t thread = 1) {
    window_.AddLaunch(correlation, launch_ns, thread, batch_);
    launches_[correlation] = {launch_ns, thread};
  }
  void Record(uint64_t correlation, uint64_t node = 0, uint64_t start_ns = 0) {
    matched_.insert(correlation);
    window_.Add({.correlation = correlation,
                 .graph_node = node,
                 .start_ns = start_ns,
                 .batch = batch_,
                 .launched = launches_.contains(correlation)});
    if (launches_.contains(correlation))
      window_.Saw(launches_[correlation].second, launches_[correlation].first);
  }
  // Ends the batch; what was handed on in it.
  std::vector<uint64_t> EndBatch(uint64_t oldest_orphan = UINT64_MAX) {
    std::vector<uint64_t> out;
    window_.EndBatch(
        batch_, oldest_orphan, [this](uint64_t correlation) { return matched_.contains(correlation); },
        [this](uint64_t correlation) { given_up_.push_back(correlation); },
        [&out](const Operation& operation) { out.push_back(operation.correlation); });
    ++batch_;
    return out;
  }
  std::vector<uint64_t> Finish() {
    std::vector<uint64_t> out;
    window_.Finish([this](uint64_t correlation) { return matched_.contains(correlation); },
                   [this](uint64_t correlation) { given_up_.push_back(correlation); },
                   [&out](const Operation& operation) { out.push_back(operation.correlation); });
    return out;
  }

  std::vector<uint64_t> FinishSoFar(bool goes_on) {
    std::vector<uint64_t> out;
    window_.FinishSoFar(
        goes_on, [this](uint64_t correlation) { return matched_.contains(correlation); },
        [this](uint64_t correlation) { return !matched_.contains(correlation); },
        [this](uint64_t correlation) { given_up_.push_back(correlation); },
        [&out](const Operation& operation) { out.push_back(operation.correlation); });
    return out;
  }

  OperationWindow window_;
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> launches_;  // when, and on which thread
  std::set<uint64_t> matched_;
  uint32_t batch_ = 1;
  std::vector<uint64_t> given_up_;
};

TEST_F(OperationWindowTest, RecordsThatComeInAnyOrderLeaveInTheOrderOfTheirLaunches) {
  for (const uint64_t c : {1, 2, 3, 4}) Launch(c);
  for (const uint64_t c : {3, 1, 4, 2}) Record(c);
  EXPECT_THAT(EndBatch(), IsEmpty());  // a launch of another thread may still be reported
  EXPECT_THAT(EndBatch(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(window_.late(), 0);
}

TEST_F(OperationWindowTest, ALaunchWithoutRecordHoldsUpWhatCameAfterIt) {
  for (const uint64_t c : {1, 2, 3}) Launch(c);
  Record(1);
  Record(3);
  EndBatch();
  EXPECT_THAT(EndBatch(), ElementsAre(1));
  Record(2);
  EXPECT_THAT(EndBatch(), ElementsAre(2, 3));
}

// CUPTI gives a buffer back when the last of its kernels has finished: on a busy device that takes seconds.
TEST_F(OperationWindowTest, ALaunchIsWaitedForHoweverManyBatchesItTakes) {
  for (const uint64_t c : {1, 2, 3}) Launch(c, c * 1'000'000);
  Record(3);
  for (uint32_t i = 0; i < 20 * OperationWindow::kPatience; ++i) EXPECT_THAT(EndBatch(), IsEmpty());
  Record(1);
  Record(2);
  EXPECT_THAT(EndBatch(), ElementsAre(1, 2, 3));
  EXPECT_THAT(given_up_, IsEmpty());
}

TEST_F(OperationWindowTest, AnotherThreadsRecordsSayLessAboutIt) {
  constexpr uint64_t kLater = OperationWindow::kLaterOnThreadNs;
  Launch(1, 0, 1);
  Launch(2, kLater, 2);
  Record(2);
  for (uint32_t i = 0; i < 2 * OperationWindow::kPatience; ++i) EXPECT_THAT(EndBatch(), IsEmpty());
  EXPECT_THAT(given_up_, IsEmpty());
  Launch(3, OperationWindow::kLaterNs, 2);
  Record(3);
  EXPECT_THAT(EndBatch(), ElementsAre(2));
  EXPECT_THAT(given_up_, ElementsAre(1));
}

TEST_F(OperationWindowTest, ALaunchIsGivenUpWhenWhatItsThreadLaunchedLongAfterItHasCome) {
  Launch(1);
  Launch(2, OperationWindow::kLaterOnThreadNs);
  Record(2);
  std::vector<uint64_t> out;
  for (uint32_t i = 0; i < OperationWindow::kPatience; ++i) EXPECT_THAT(EndBatch(), IsEmpty());
  EXPECT_THAT(given_up_, IsEmpty());
  EXPECT_THAT(EndBatch(), ElementsAre(2));
  EXPECT_THAT(given_up_, ElementsAre(1));
  // It comes after all, out of order: not lost, and counted.
  Record(1);
  EndBatch();
  EXPECT_THAT(Finish(), IsEmpty());
  EXPECT_EQ(window_.late(), 1);
}

TEST_F(OperationWindowTest, ARecordThatWaitsForItsLaunchHoldsUpWhatCameAfterIt) {
  for (const uint64_t c : {5, 7}) Launch(c);
  Record(5);
  Record(7);
  EndBatch(6);
  EXPECT_THAT(EndBatch(6), ElementsAre(5));
  EXPECT_THAT(EndBatch(), ElementsAre(7));
}

TEST_F(OperationWindowTest, LaunchesOfTwoThreadsAreOneOrderThoughTheyAreToldOneAfterTheOther) {
  Launch(1);
  Launch(4);
  Record(1);
  Record(4);
  EndBatch();
  Launch(2);
  Launch(3);
  Record(2);
  EXPECT_THAT(EndBatch(), ElementsAre(1, 2));
  Record(3);
  EXPECT_THAT(EndBatch(), ElementsAre(3, 4));
}

TEST_F(OperationWindowTest, NodesOfOneGraphLaunchKeepTheGraphsOrderWhereverTheyRan) {
  Launch(1);
  Record(1, 30, 10);
  Record(1, 10, 20);
  Record(1, 20, 30);
  std::vector<uint64_t> nodes;
  window_.Finish([](uint64_t) { return true; }, [](uint64_t) {},
                 [&](const Operation& operation) { nodes.push_back(operation.graph_node); });
  EXPECT_THAT(nodes, ElementsAre(10, 20, 30));
}

TEST_F(OperationWindowTest, WhatWaitsIsBounded) {
  Launch(1);
  for (uint64_t c = 2; c < OperationWindow::kMaxHeld + 10; ++c) {
    Launch(c);
    Record(c);
  }
  for (uint32_t i = 0; i < OperationWindow::kPatience; ++i) EXPECT_THAT(EndBatch(), IsEmpty());
  EXPECT_GT(EndBatch().size(), OperationWindow::kMaxHeld) << "so many that the usual patience is enough";
  EXPECT_EQ(window_.held(), 0);
}

TEST_F(OperationWindowTest, AtOnceIfItHasToBe) {
  Launch(1);
  for (uint64_t c = 2; c < 2 * OperationWindow::kMaxHeld + 10; ++c) {
    Launch(c);
    Record(c);
  }
  EXPECT_GT(EndBatch().size(), 2 * OperationWindow::kMaxHeld);
  EXPECT_EQ(window_.held(), 0);
}

TEST_F(OperationWindowTest, AtTheEndEverythingLeaves) {
  Launch(1);
  Launch(2);
  Record(2);
  EXPECT_THAT(EndBatch(), IsEmpty());
  EXPECT_THAT(Finish(), ElementsAre(2));
  EXPECT_THAT(given_up_, ElementsAre(1));
}

// Thread 1 has reported up to launch 3, thread 2 up to launch 2.
TEST_F(OperationWindowTest, WhatWasStillToComeIsLeftOutOfWhatThereIs) {
  Launch(1, 10, 1);
  Launch(2, 20, 2);
  Launch(3, 30, 1);
  Launch(4, 40, 2);
  Launch(5, 50, 1);
  for (const uint64_t c : {2, 3, 5}) Record(c);
  EXPECT_THAT(FinishSoFar(false), ElementsAre(2, 3));
  EXPECT_THAT(given_up_, ElementsAre(1)) << "a later launch of its thread has come";
  EXPECT_EQ(window_.held(), 0);
}

TEST_F(OperationWindowTest, TheOrderEndsWhereAThreadsRecordsThinOut) {
  // Records of one kind had been sent, of memsets say, and those of kernels had not.
  for (uint64_t c = 1; c <= 20; ++c) Launch(c, c);
  for (const uint64_t c : {1, 2, 4, 5, 6, 10, 15, 20}) Record(c);
  EXPECT_THAT(FinishSoFar(false), ElementsAre(1, 2, 4, 5, 6));
  EXPECT_THAT(given_up_, ElementsAre(3)) << "most of what follows it has come; of what follows 6, little has";
}

TEST_F(OperationWindowTest, WhatIsWaitedForEndsWhatThereIsSoFar) {
  constexpr uint64_t kLater = OperationWindow::kLaterOnThreadNs;
  Launch(1, 10);
  Launch(2, 20);
  Launch(3, 30);
  Launch(4, 20 + kLater);
  Record(1);
  Record(4);
  EXPECT_THAT(FinishSoFar(true), ElementsAre(1));
  EXPECT_THAT(given_up_, ElementsAre(2)) << "it would have been given up anyhow";
}

TEST_F(OperationWindowTest, TheCounterOfLaunchesMayStartOver) {
  constexpr uint64_t kLast = UINT32_MAX;
  Launch(kLast);
  Record(kLast);
  EndBatch();
  EXPECT_THAT(EndBatch(), ElementsAre(kLast));
  Launch(1);
  Launch(2);
  Record(1);
  Record(2);
  EndBatch();
  EXPECT_THAT(EndBatch(), ElementsAre(1, 2));
  EXPECT_EQ(window_.late(), 0);
}

}  // namespace
}  // namespace gpuprobe::model
