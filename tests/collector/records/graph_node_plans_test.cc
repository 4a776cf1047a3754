#include "collector/records/graph_node_plans.h"

#include <gtest/gtest.h>

namespace gpuprobe::model {
namespace {

TEST(GraphNodePlans, ALaunchHasThePlanThatItsNodeCarriedThen) {
  GraphNodePlans plans;
  plans.Set(7, {100, 0}, 0);
  EXPECT_EQ(plans.PlanOf(7, 1).plan, 100u);
  plans.Set(7, {200, 0}, 50);
  plans.Set(7, {0, 0}, 60);  // nobody knows
  plans.Set(7, {300, 0}, 70);
  EXPECT_EQ(plans.PlanOf(7, 49).plan, 100u);
  EXPECT_EQ(plans.PlanOf(7, 50).plan, 200u);
  EXPECT_EQ(plans.PlanOf(7, 59).plan, 200u);
  EXPECT_EQ(plans.PlanOf(7, 65).plan, 0u);
  EXPECT_EQ(plans.PlanOf(7, 1000).plan, 300u);
  EXPECT_EQ(plans.PlanOf(8, 1000).plan, 0u);
}

TEST(GraphNodePlans, WhatANodeCarriedMayBeToldInAnyOrder) {
  GraphNodePlans plans;
  plans.Set(7, {300, 0}, 70);
  plans.Set(7, {100, 0}, 20);
  plans.Set(7, {200, 0}, 50);
  plans.Set(7, {300, 0}, 65);
  EXPECT_EQ(plans.PlanOf(7, 19).plan, 0u);
  EXPECT_EQ(plans.PlanOf(7, 20).plan, 100u);
  EXPECT_EQ(plans.PlanOf(7, 64).plan, 200u);
  EXPECT_EQ(plans.PlanOf(7, 65).plan, 300u);
  EXPECT_EQ(plans.PlanOf(7, 70).plan, 300u);
}

TEST(GraphNodePlans, OnlyTheLastUpdatesAreKept) {
  GraphNodePlans plans(2, 3);
  for (uint64_t i = 0; i < 100; ++i) plans.Set(7, {1000 + i, 0}, i);
  EXPECT_EQ(plans.PlanOf(7, 99).plan, 1099u);
  EXPECT_EQ(plans.PlanOf(7, 96).plan, 1096u);
  EXPECT_EQ(plans.PlanOf(7, 95).plan, 0u);
  plans.Set(8, {1, 0}, 0);
  plans.Set(9, {1, 0}, 0);  // too many nodes
  EXPECT_EQ(plans.PlanOf(8, 1).plan, 1u);
  EXPECT_EQ(plans.PlanOf(9, 1).plan, 0u);
}

}  // namespace
}  // namespace gpuprobe::model
