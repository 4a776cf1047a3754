#include "collector/analysis/memory/memory_holdings.h"

#include <gtest/gtest.h>

#include <map>

#include "collector/report/collectives.h"
#include "collector/report/memory.h"
#include "collector/report/ranks.h"
#include "collector/report/words.h"
#include "tests/collector/testing/units.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::kMiB;

using Parts = std::map<std::string, uint64_t>;

// In MiB.
MemoryLifetimesReport Lifetimes(const Parts& parts, uint64_t from_backward = 0) {
  MemoryLifetimesReport lifetimes;
  for (const auto& [lifetime, mib] : parts) {
    for (const auto& [value, word] : report::WordsOf<model::Lifetime>()) {
      if (word == lifetime)
        lifetimes.parts.push_back({.lifetime = static_cast<model::Lifetime>(value), .bytes = mib * kMiB});
    }
    lifetimes.peak_bytes += mib * kMiB;
  }
  lifetimes.from_backward_bytes_per_step = from_backward * kMiB;
  return lifetimes;
}

HoldingEvidence Reduces(double mib, Optimizer optimizer = Optimizer::kAdam, uint32_t element_bytes = 4) {
  return {.gradient_bytes = mib * kMiB,
          .state_shards = 1,
          .weight_shards = 1,
          .gradient_element_bytes = element_bytes,
          .reduced_by = "AllReduce",
          .optimizer = optimizer};
}

// What is held, in MiB; checks that nothing is lost or counted twice.
Parts Held(const MemoryLifetimesReport& lifetimes, const HoldingEvidence& evidence) {
  Parts held;
  uint64_t sum = 0;
  for (const MemoryLifetimesReport::Holding& holding : HoldingsOf(lifetimes, evidence)) {
    held[holding.what] += holding.bytes / kMiB;
    sum += holding.bytes;
    EXPECT_GT(holding.bytes, 0U);
  }
  EXPECT_EQ(sum, lifetimes.peak_bytes);
  return held;
}

TEST(MemoryHoldings, EverythingAllocatedBeforeTheFirstStepIsToldApart) {
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 52}}), Reduces(12)),
            (Parts{{"weights", 12},
                   {"gradients", 12},
                   {"optimizer state (Adam)", 24},
                   {"other, allocated before the first step", 4}}));
}

TEST(MemoryHoldings, WithoutASecondFactNothingIsNamed) {
  EXPECT_EQ(
      Held(Lifetimes({{"before_steps", 52}, {"first_steps", 24}}), {}),
      (Parts{{"other, allocated before the first step", 52}, {"other, kept from the first steps", 24}}));
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 52}}), Reduces(12, Optimizer::kUnknown)),
            (Parts{{"weights", 12}, {"gradients", 12}, {"other, allocated before the first step", 28}}));
}

HoldingEvidence RunsAdam() { return {.reduced_by = "", .optimizer = Optimizer::kAdam}; }

TEST(MemoryHoldings, WithoutReductionsAdamsStateIsTwiceTheWeights) {
  EXPECT_EQ(
      Held(Lifetimes({{"before_steps", 100}, {"first_steps", 201}, {"from_backward", 40}}, 110), RunsAdam()),
      (Parts{{"weights", 100}, {"optimizer state (Adam)", 201}, {"gradients", 40}}));
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 100}, {"first_steps", 200}, {"first_steps_backward", 99}}),
                 RunsAdam()),
            (Parts{{"weights", 100}, {"optimizer state (Adam)", 200}, {"gradients", 99}}))
      << "gradients that are set to zero in place are kept";
}

TEST(MemoryHoldings, WithoutReductionsOtherSizesAreNoEvidence) {
  const Parts other{{"other, allocated before the first step", 100},
                    {"other, kept from the first steps", 180}};
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 100}, {"first_steps", 180}}), RunsAdam()), other);
  EXPECT_EQ(
      Held(Lifetimes({{"before_steps", 100}, {"first_steps", 200}}), {}),
      (Parts{{"other, allocated before the first step", 100}, {"other, kept from the first steps", 200}}))
      << "another optimizer may keep anything";
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 100}, {"first_steps", 200}, {"first_steps_backward", 50}}),
                 RunsAdam()),
            (Parts{{"other, allocated before the first step", 100},
                   {"other, kept from the first steps", 200},
                   {"other, kept from the first backward", 50}}));
  EXPECT_EQ(
      Held(Lifetimes({{"before_steps", 100}, {"first_steps", 200}, {"from_backward", 40}}, 60), RunsAdam()),
      (Parts{{"weights", 100},
             {"optimizer state (Adam)", 200},
             {"other, allocated in backward, freed later", 40}}))
      << "backward frees less than there are gradients";
}

TEST(MemoryHoldings, WhatAPartCannotHoldIsNotInIt) {
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 11}}), Reduces(12)),
            (Parts{{"other, allocated before the first step", 11}}));
  // Room for weights and gradients, not for two values a weight.
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 30}}), Reduces(12)),
            (Parts{{"weights", 12}, {"gradients", 12}, {"other, allocated before the first step", 6}}));
}

TEST(MemoryHoldings, StateThatTheFirstStepMakesMayCountAsBackward) {
  // PyTorch: zero_grad(set_to_none=True) frees gradients in every step, and the first ones are there at the
  // peak.
  const Parts expected{{"weights", 12},
                       {"optimizer state (Adam)", 24},
                       {"gradients", 3},
                       {"activations", 40},
                       {"other, allocated before the first step", 8}};
  EXPECT_EQ(
      Held(Lifetimes({{"before_steps", 20}, {"first_steps", 24}, {"from_backward", 3}, {"from_forward", 40}},
                     12),
           Reduces(12)),
      expected);
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 20},
                            {"first_steps_backward", 24},
                            {"from_backward", 3},
                            {"from_forward", 40}},
                           12),
                 Reduces(12)),
            expected);
  // set_to_none=False: gradients are kept from the first backward on.
  EXPECT_EQ(
      Held(Lifetimes({{"before_steps", 12}, {"first_steps", 2}, {"first_steps_backward", 34}}), Reduces(12)),
      (Parts{{"weights", 12}, {"optimizer state (Adam)", 24}, {"gradients", 12}}));
}

TEST(MemoryHoldings, WorkspacesOfBackwardAreNoGradients) {
  const Parts held = Held(Lifetimes({{"before_steps", 52}, {"first_steps_backward", 1}}), Reduces(12));
  EXPECT_EQ(held.at("gradients"), 12U);
  EXPECT_EQ(held.at("other, kept from the first backward"), 1U);
}

TEST(MemoryHoldings, PytorchReducesCopiesOfTheGradientsInBuckets) {
  HoldingEvidence evidence = Reduces(12);
  evidence.buckets = 2;
  // Made anew in the first steps, each rounded up to 2 MiB.
  const MemoryLifetimesReport later = Lifetimes(
      {{"before_steps", 12}, {"first_steps", 24 + 14}, {"from_backward", 12}, {"workspace", 64}}, 12);
  EXPECT_EQ(Held(later, evidence), (Parts{{"weights", 12},
                                          {"optimizer state (Adam)", 24},
                                          {"gradients", 12},
                                          {"gradient buckets (DDP)", 14},
                                          {"cuBLAS workspace", 64}}));
  const MemoryLifetimesReport before =
      Lifetimes({{"before_steps", 24}, {"first_steps", 24}, {"from_backward", 12}}, 12);
  EXPECT_EQ(Held(before, evidence).at("gradient buckets (DDP)"), 12U);
  // What is larger may be anything, and so may it be elsewhere than in PyTorch.
  const MemoryLifetimesReport more =
      Lifetimes({{"before_steps", 12 + 30}, {"first_steps", 24}, {"from_backward", 12}}, 12);
  EXPECT_FALSE(Held(more, evidence).contains("gradient buckets (DDP)"));
  EXPECT_FALSE(Held(before, Reduces(12)).contains("gradient buckets (DDP)"));
}

TEST(MemoryHoldings, HalfPrecisionGradientsShowTheirStateByItsSize) {
  const auto state = [](uint64_t mib) {
    const Parts held =
        Held(Lifetimes({{"before_steps", 12}, {"first_steps", mib}}, 12), Reduces(12, Optimizer::kAdam, 2));
    const auto found = held.find("optimizer state (Adam)");
    return found == held.end() ? 0 : found->second;
  };
  EXPECT_EQ(state(24), 24U);
  EXPECT_EQ(state(48), 48U);
  EXPECT_EQ(state(72), 72U);
  EXPECT_EQ(state(60 + 4), 0U);  // neither
  // Allocated with everything else, any of the three could be meant.
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 100}}, 12), Reduces(12, Optimizer::kAdam, 2))
                .count("optimizer state (Adam)"),
            0U);
}

TEST(MemoryHoldings, WhatNcclAllocatesIsItsOwn) {
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 12}, {"nccl", 9}}), {}),
            (Parts{{"NCCL's buffers", 9}, {"other, allocated before the first step", 12}}));
}

RankReport RankWith(std::vector<CollectiveReport> collectives) {
  RankReport rank;
  rank.steps.emplace().count = 60;
  rank.devices = {0};
  rank.optimizer = Optimizer::kAdam;
  rank.collectives = std::move(collectives);
  return rank;
}

CollectiveReport CallsInAll(std::string op, uint64_t calls, uint64_t mib, uint32_t element_bytes = 4) {
  CollectiveReport c;
  c.op = std::move(op);
  c.comm = "a";
  c.comm_ranks = 4;
  c.calls = calls;
  c.size_bytes = mib * kMiB;
  c.bytes = calls * mib * kMiB;
  c.element_bytes = element_bytes;
  return c;
}

CommunicationReport With(CommunicationRole role) {
  CommunicationReport communication;
  communication.roles["a"] = role;
  return communication;
}

TEST(MemoryHoldings, GradientsAreWhatIsReducedInEveryStep) {
  // 61 steps began, 60 ended; a loss is reduced now and then, a norm once in a step by another operation.
  const HoldingEvidence evidence =
      EvidenceOf(RankWith({CallsInAll("AllReduce", 3 * 61, 4), CallsInAll("AllReduce", 5, 100),
                           CallsInAll("Broadcast", 60, 50)}),
                 {}, With(CommunicationRole::kData));
  EXPECT_EQ(evidence.gradient_bytes, 12.0 * kMiB);
  EXPECT_EQ(evidence.gradient_element_bytes, 4U);
  EXPECT_EQ(evidence.reduced_by, "AllReduce");
}

TEST(MemoryHoldings, CallsOfForwardReduceNoGradients) {
  const HoldingEvidence evidence =
      EvidenceOf(RankWith({CallsInAll("AllReduce", 60, 4), CallsInAll("AllReduce", 240, 64)}),
                 {{"AllReduce", "a", 64 * kMiB}}, With(CommunicationRole::kData));
  EXPECT_EQ(evidence.gradient_bytes, 4.0 * kMiB);
}

TEST(MemoryHoldings, CommunicatorsOfOtherRolesReduceNoGradients) {
  const RankReport rank = RankWith({CallsInAll("AllReduce", 60, 4)});
  EXPECT_EQ(EvidenceOf(rank, {}, With(CommunicationRole::kTensor)).gradient_bytes, 0);
  EXPECT_EQ(EvidenceOf(rank, {}).gradient_bytes, 0);
}

TEST(MemoryHoldings, SeveralDevicesOfAProcessAreNotToldApart) {
  RankReport rank = RankWith({CallsInAll("AllReduce", 60, 4)});
  rank.devices = {0, 1};
  EXPECT_EQ(EvidenceOf(rank, {}, With(CommunicationRole::kData)).gradient_bytes, 0);
}

TEST(MemoryHoldings, ShardsOfStateGradientsAndWeights) {
  HoldingEvidence evidence = Reduces(32);
  evidence.reduced_by = "ReduceScatter";
  evidence.state_shards = 4;
  // ZeRO stages 1, 2 and 3.
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 32}, {"first_steps", 16}, {"from_backward", 32}}, 32), evidence),
            (Parts{{"weights", 32}, {"optimizer state (Adam)", 16}, {"gradients", 32}}));
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 32}, {"first_steps", 16}, {"from_backward", 8}}, 8), evidence),
            (Parts{{"weights", 32}, {"optimizer state (Adam)", 16}, {"gradients", 8}}));
  evidence.weight_shards = 4;
  EXPECT_EQ(Held(Lifetimes({{"before_steps", 8}, {"first_steps", 16}, {"from_backward", 8}}, 8), evidence),
            (Parts{{"weights", 8}, {"optimizer state (Adam)", 16}, {"gradients", 8}}));
}

TEST(MemoryHoldings, RanksKeepShardsByTheRoleOfWhatReducesTheGradients) {
  const RankReport rank = RankWith({CallsInAll("ReduceScatter", 60, 3), CallsInAll("AllGather", 60, 12)});
  const HoldingEvidence after = EvidenceOf(rank, {}, With(CommunicationRole::kSharedState));
  EXPECT_EQ(after.gradient_bytes, 12.0 * kMiB);
  EXPECT_EQ(after.state_shards, 4);
  EXPECT_EQ(after.weight_shards, 1);
  const HoldingEvidence in_layers = EvidenceOf(rank, {}, With(CommunicationRole::kSharded));
  EXPECT_EQ(in_layers.state_shards, 4);
  EXPECT_EQ(in_layers.weight_shards, 4);
  // DeepSpeed's stage 1 reduces gradients as without it.
  const RankReport reduces = RankWith({CallsInAll("AllReduce", 60, 12), CallsInAll("AllGather", 60, 12)});
  const HoldingEvidence first = EvidenceOf(reduces, {}, With(CommunicationRole::kSharedState));
  EXPECT_EQ(first.gradient_bytes, 12.0 * kMiB);
  EXPECT_EQ(first.state_shards, 4);
}

TEST(MemoryHoldings, OptimizersByTheirKernels) {
  EXPECT_EQ(OptimizerNamed("_Z8AdamStepPfS_"), Optimizer::kAdam);
  EXPECT_EQ(OptimizerNamed("multi_tensor_apply_kernel<FusedAdamMathFunctor>"), Optimizer::kAdam);
  EXPECT_EQ(OptimizerNamed("LinearForward"), Optimizer::kUnknown);
  EXPECT_EQ(OptimizerNamed("lambda_kernel"), Optimizer::kUnknown);
}

}  // namespace
}  // namespace gpuprobe::analysis
