#include "injector/ledgers/graph_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace gpuprobe::injector {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kPlannedGraph = 0x100;
constexpr uint64_t kPlannedExec = 0x200;
constexpr uint64_t kOwner = uint64_t{1} << 63;

class GraphPlansTest : public ::testing::Test {
 protected:
  // A graph whose nodes have these ids and carry plans of ten times that.
  void Capture(uint64_t graph, const std::vector<uint64_t>& nodes) {
    for (const uint64_t node : nodes) {
      plans_->NodeMade(graph, node, 0);
      plans_->Carries(node, node * 10);
    }
  }
  // Copies are numbered from 1000 and made in any order.
  void Instantiate(uint64_t exec, const std::vector<uint64_t>& originals) {
    for (const uint64_t original : originals) plans_->NodeMade(kOwner | exec, 1000 + original, original);
    plans_->Instantiated(exec, kOwner | exec);
  }
  std::vector<std::pair<uint64_t, uint64_t>> Update(uint64_t exec, uint64_t graph) {
    std::vector<std::pair<uint64_t, uint64_t>> told;
    plans_->Updated(exec, graph,
                    [&](uint64_t node, uint64_t plan, uint32_t) { told.emplace_back(node, plan); });
    return told;
  }
  std::unique_ptr<GraphPlans> plans_ = std::make_unique<GraphPlans>();
};

TEST_F(GraphPlansTest, NodesArePairedInTheOrderInWhichTheyWereMade) {
  Capture(kPlannedGraph, {3, 5, 8});
  Instantiate(kPlannedExec, {8, 3, 5});
  Capture(kPlannedGraph + 1, {20, 21, 22});
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph + 1),
              ElementsAre(Pair(1003, 200), Pair(1005, 210), Pair(1008, 220)));
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph),
              ElementsAre(Pair(1003, 30), Pair(1005, 50), Pair(1008, 80)));
}

TEST_F(GraphPlansTest, WhatDoesNotPairIsUnknown) {
  Capture(kPlannedGraph, {3, 5});
  Instantiate(kPlannedExec, {3, 5});
  Capture(kPlannedGraph + 1, {20, 21, 22});
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph + 1), ElementsAre(Pair(1003, 0), Pair(1005, 0)));
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph + 7), ElementsAre(Pair(1003, 0), Pair(1005, 0)))
      << "a graph without calls";
  EXPECT_THAT(Update(kPlannedExec + 7, kPlannedGraph), IsEmpty());
}

TEST_F(GraphPlansTest, AProgramThatCapturesAtEachStepNeedsNoMoreAndMore) {
  Capture(kPlannedGraph, {1, 2});
  Instantiate(kPlannedExec, {1, 2});
  for (uint64_t i = 0; i < 200'000; ++i) {
    const uint64_t node = 10'000 + 2 * i;
    Capture(kPlannedGraph + 1, {node, node + 1});
    ASSERT_THAT(Update(kPlannedExec, kPlannedGraph + 1),
                ElementsAre(Pair(1001, node * 10), Pair(1002, node * 10 + 10)));
    plans_->GraphEnded(kPlannedGraph + 1);
  }
  plans_->ExecEnded(kPlannedExec);
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph), IsEmpty());
}

// A child graph that was added to a parent, whose own nodes are before and behind it.
TEST_F(GraphPlansTest, AChildsNodesAreWhereItWasAdded) {
  constexpr uint64_t kChild = 0x300;
  constexpr uint64_t kNode = 0x310;
  const auto parent = [&](uint64_t graph, uint64_t first) {
    Capture(kChild, {first, first + 1});  // before any of the parent
    Capture(graph, {first + 2});
    for (const uint64_t id : {first + 4, first + 3}) {
      plans_->NodeMade(kOwner | 5, id, id == first + 3 ? first : first + 1);
      plans_->Carries(id, id * 10, 5);
    }
    plans_->ChildAdded(graph, kNode, kOwner | 5);
    Capture(graph, {first + 5});
    plans_->GraphEnded(kChild);
  };
  parent(kPlannedGraph, 1);
  parent(kPlannedGraph + 1, 21);
  Instantiate(kPlannedExec, {6, 5, 4, 3});
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph + 1),
              ElementsAre(Pair(1003, 230), Pair(1004, 240), Pair(1005, 250), Pair(1006, 260)));
  // One that is replaced gets its plans alone; one that does not fit leaves nothing known of it alone.
  Capture(kChild, {41, 42});
  std::vector<std::pair<uint64_t, uint64_t>> told;
  const auto put = [&](uint64_t node, uint64_t plan, uint32_t) { told.emplace_back(node, plan); };
  plans_->ChildReplaced(kPlannedExec, kNode, kChild, put);
  EXPECT_THAT(told, ElementsAre(Pair(1004, 410), Pair(1005, 420)));
  told.clear();
  Capture(kChild, {43});
  plans_->ChildReplaced(kPlannedExec, kNode, kChild, put);
  EXPECT_THAT(told, ElementsAre(Pair(1004, 0), Pair(1005, 0)));
}

TEST_F(GraphPlansTest, AChildThatIsMovedKeepsItsNodes) {
  constexpr uint64_t kChild = 0x300;
  Capture(kChild, {1, 2});
  Capture(kPlannedGraph, {3});
  plans_->ChildAdded(kPlannedGraph, 0x310, kChild);
  Capture(kPlannedGraph + 1, {21});
  Capture(kChild + 1, {22, 23});
  plans_->ChildAdded(kPlannedGraph + 1, 0x320, kChild + 1);
  Instantiate(kPlannedExec, {1, 2, 3});
  EXPECT_THAT(Update(kPlannedExec, kPlannedGraph + 1),
              ElementsAre(Pair(1003, 210), Pair(1001, 220), Pair(1002, 230)));
}

TEST_F(GraphPlansTest, OfACloneItIsNotKnownWhichChildIsReplaced) {
  constexpr uint64_t kChild = 0x300;
  Capture(kPlannedGraph, {1});
  Capture(kChild, {2});
  plans_->ChildAdded(kPlannedGraph, 0x310, kChild);
  plans_->NodeMade(kOwner | 5, 11, 1);
  plans_->NodeMade(kOwner | 5, 12, 2);
  plans_->Cloned(kPlannedGraph + 1, kOwner | 5);
  Instantiate(kPlannedExec, {11, 12});
  Capture(kChild, {21});
  std::vector<std::pair<uint64_t, uint64_t>> told;
  plans_->ChildReplaced(kPlannedExec, 0x330, kChild,
                        [&](uint64_t node, uint64_t plan, uint32_t) { told.emplace_back(node, plan); });
  EXPECT_THAT(told, ElementsAre(Pair(1012, 0)));
}

}  // namespace
}  // namespace gpuprobe::injector
