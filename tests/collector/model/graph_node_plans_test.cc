#include "collector/model/graph_node_plans.h"

#include <gtest/gtest.h>

namespace gpuprobe::model {
namespace {

TEST(GraphNodePlans, ALaunchHasThePlanThatItsNodeCarriedThen) {
  GraphNodePlans plans;
  plans.Set(7, 100, 0);
  EXPECT_EQ(plans.PlanOf(7, 1), 100u);
  plans.Set(7, 200, 50);
  plans.Set(7, 0, 60);  // nobody knows
  plans.Set(7, 300, 70);
  EXPECT_EQ(plans.PlanOf(7, 49), 100u);
  EXPECT_EQ(plans.PlanOf(7, 50), 200u);
  EXPECT_EQ(plans.PlanOf(7, 59), 200u);
  EXPECT_EQ(plans.PlanOf(7, 65), 0u);
  EXPECT_EQ(plans.PlanOf(7, 1000), 300u);
  EXPECT_EQ(plans.PlanOf(8, 1000), 0u);
}

TEST(GraphNodePlans, OnlyTheLastUpdatesAreKept) {
  GraphNodePlans plans(2, 3);
  for (uint64_t i = 0; i < 100; ++i) plans.Set(7, 1000 + i, i);
  EXPECT_EQ(plans.PlanOf(7, 99), 1099u);
  EXPECT_EQ(plans.PlanOf(7, 96), 1096u);
  EXPECT_EQ(plans.PlanOf(7, 95), 0u);
  plans.Set(8, 1, 0);
  plans.Set(9, 1, 0);  // too many nodes
  EXPECT_EQ(plans.PlanOf(8, 1), 1u);
  EXPECT_EQ(plans.PlanOf(9, 1), 0u);
}

}  // namespace
}  // namespace gpuprobe::model
