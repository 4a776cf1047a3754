// The roles of groups of ranks by what they carry, in thousands of elements per rank and step: each kind of
// parallelism, and what nearly is one.
#include "collector/analysis/communication/parallelism.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace gpuprobe::analysis {
namespace {

using enum CommunicationRole;

GroupTraffic Group(std::set<uint32_t> members, GroupTraffic traffic) {
  traffic.ranks = static_cast<int>(members.size());
  traffic.members = std::move(members);
  for (double GroupTraffic::*part :
       {&GroupTraffic::reduced, &GroupTraffic::reduced_in_layers, &GroupTraffic::scattered,
        &GroupTraffic::scattered_in_layers, &GroupTraffic::gathered, &GroupTraffic::gathered_for_passes,
        &GroupTraffic::broadcast, &GroupTraffic::exchanged})
    traffic.*part *= 1000;
  return traffic;
}

CommunicationRole RoleOf(GroupTraffic traffic, bool passes_known = true) {
  return RolesOf({Group({0, 1}, std::move(traffic))}, passes_known).front();
}

TEST(Parallelism, GradientsThatAreReducedAreDataParallelism) {
  EXPECT_EQ(RoleOf({.reduced = 3000}), kData);
  EXPECT_EQ(RoleOf({.scattered = 3000}), kData) << "nothing is gathered";
  EXPECT_EQ(RoleOf({.reduced = 3000, .gathered = 0.016}), kData) << "a count of tokens";
  EXPECT_EQ(RoleOf({.reduced = 3000, .gathered = 260}), kData) << "outputs for a metric";
  EXPECT_EQ(RoleOf({.reduced = 3000, .gathered = 40, .gathered_for_passes = 40}), kData)
      << "batch normalisation over the ranks";
  EXPECT_EQ(RoleOf({.reduced = 3000, .reduced_in_layers = 40}), kData) << "the same, with AllReduce";
  EXPECT_EQ(RoleOf({.reduced = 0.004}), kOther) << "no model is that small: a loss";
}

TEST(Parallelism, ShardedWeightsAreGatheredInsideTheLayersAndTheirGradientsScattered) {
  EXPECT_EQ(RoleOf({.scattered = 3000, .gathered = 6000, .gathered_for_passes = 5000}), kSharded);
  EXPECT_EQ(RoleOf({.reduced = 64, .scattered = 3000, .gathered = 6000, .gathered_for_passes = 5000}),
            kSharded)
      << "norms of many tensors";
  EXPECT_EQ(RoleOf({.scattered = 3, .gathered = 6000, .gathered_for_passes = 5000}), kSharded)
      << "most weights are not trained";
  EXPECT_EQ(RoleOf({.scattered = 3000, .gathered = 3000, .gathered_for_passes = 1500}), kSharded)
      << "weights are kept for backward; two layers";
  EXPECT_EQ(RoleOf({.scattered = 3000, .gathered = 1800, .gathered_for_passes = 1800}), kSharded)
      << "evaluations leave them gathered for the next step";
  EXPECT_EQ(RoleOf({.reduced = 3000, .scattered = 500, .gathered = 500, .gathered_for_passes = 500}), kData)
      << "outputs that are gathered for a loss, and their gradients";
}

TEST(Parallelism, SharedStateIsGatheredAfterTheUpdate) {
  EXPECT_EQ(RoleOf({.reduced = 3000, .gathered = 3000}), kSharedState);
  EXPECT_EQ(RoleOf({.scattered = 3000, .gathered = 3000}), kSharedState);
  EXPECT_EQ(RoleOf({.reduced = 3000, .broadcast = 3000}), kSharedState) << "each rank's share by itself";
  EXPECT_EQ(RoleOf({.scattered = 3000, .gathered = 3060}), kSharedState) << "padding";
  EXPECT_EQ(RoleOf({.reduced = 3000, .broadcast = 1}), kData) << "buffers";
}

TEST(Parallelism, TensorParallelismReducesAmidForward) {
  EXPECT_EQ(RoleOf({.reduced = 8000, .reduced_in_layers = 8000}), kTensor);
  EXPECT_EQ(RoleOf({.reduced = 8100, .reduced_in_layers = 8000, .gathered = 30, .gathered_for_passes = 30}),
            kTensor);
  EXPECT_EQ(
      RoleOf(
          {.scattered = 8000, .scattered_in_layers = 8000, .gathered = 12000, .gathered_for_passes = 12000}),
      kTensorSequence);
}

TEST(Parallelism, GroupsOfOneSizeStayApart) {
  const GroupTraffic tensor{.reduced = 8000, .reduced_in_layers = 8000};
  EXPECT_EQ(RolesOf({Group({0, 1}, tensor), Group({2, 3}, tensor), Group({0, 2}, {.reduced = 3000}),
                     Group({1, 3}, {.reduced = 3000})},
                    true),
            (std::vector{kTensor, kTensor, kData, kData}));
}

TEST(Parallelism, ShardsThatAreReducedBetweenGroupsAreHybrid) {
  const GroupTraffic shards{.scattered = 3000, .gathered = 6000, .gathered_for_passes = 5000};
  EXPECT_EQ(RolesOf({Group({0, 1}, shards), Group({2, 3}, shards), Group({0, 2}, {.reduced = 1500}),
                     Group({1, 3}, {.reduced = 1500})},
                    true),
            (std::vector{kSharded, kSharded, kReplicas, kReplicas}));
  EXPECT_EQ(RolesOf({Group({0, 1}, shards), Group({0, 2}, {.reduced = 700})}, true),
            (std::vector{kSharded, kData}))
      << "other weights";
  EXPECT_EQ(RolesOf({Group({0, 1}, shards), Group({0, 1, 2, 3}, {.reduced = 0.002})}, true),
            (std::vector{kSharded, kOther}))
      << "a norm over all ranks";
}

TEST(Parallelism, WhatCarriesNextToNothingHasNoRole) {
  EXPECT_EQ(RolesOf({Group({0, 1}, {.reduced = 1, .exchanged = 50000})}, true), std::vector{kOther});
  EXPECT_EQ(
      RolesOf({Group({0, 1}, {.reduced = 100000}), Group({0, 2}, {.reduced = 30, .reduced_in_layers = 30})},
              true),
      (std::vector{kData, kOther}));
}

TEST(Parallelism, WithoutPassesLessIsKnown) {
  EXPECT_EQ(RoleOf({.scattered = 3000, .gathered = 6000}, false), kSharedUnknown);
  EXPECT_EQ(RoleOf({.reduced = 3000, .gathered = 3000}, false), kSharedState);
  EXPECT_EQ(RoleOf({.reduced = 3000}, false), kData);
  EXPECT_EQ(RolesOf({Group({0, 1}, {.reduced = 8000}), Group({0, 2}, {.reduced = 3000})}, false),
            (std::vector{kTensorOrData, kTensorOrData}));
  EXPECT_EQ(RolesOf({Group({0, 1}, {.reduced = 8000}), Group({2, 3}, {.reduced = 3000})}, false),
            (std::vector{kData, kData}))
      << "two stages of a pipeline";
}

}  // namespace
}  // namespace gpuprobe::analysis
