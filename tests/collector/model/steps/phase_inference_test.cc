#include "collector/model/steps/phase_inference.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace gpuprobe::model {
namespace {

// A step in letters: kernels of PyTorch's on the calling thread, unless it says otherwise.
//   a to k  kernels without a telling name, each letter another one
//   W       named forward     A  puts tensors together
//   L       a loss            S  the fill of a few elements     N  a norm
//   B       named backward    T  launched by autograd's thread  t  foreach, launched there
//   O       an optimizer's    F  foreach, as optimizers use     C  a copy to the device
//   R       gradients reduced r  a few bytes reduced
//   M       named backward, not PyTorch's                       m  another kernel of that program
StepOperation OperationOf(char letter) {
  StepOperation o{.start_ns = 0, .end_ns = 10, .coarse = static_cast<uint32_t>(letter), .launched = true};
  o.roles = kRolePyTorch;
  switch (letter) {
    case 'L':
      o.roles |= kRoleLossName;
      break;
    case 'A':
      o.roles |= kRoleFlatten;
      break;
    case 'W':
      o.roles |= kRoleForwardName;
      break;
    case 'S':
      o.roles |= kRoleMemset | kRoleSeed;
      break;
    case 'N':
      o.roles |= kRoleNorm;
      break;
    case 'B':
      o.roles |= kRoleBackwardName;
      break;
    case 'T':
      o.roles |= kRoleAutogradThread;
      break;
    case 't':
      o.roles |= kRoleAutogradThread | kRoleOptimizer | kRoleForeach;
      break;
    case 'O':
      o.roles |= kRoleOptimizer;
      break;
    case 'F':
      o.roles |= kRoleOptimizer | kRoleForeach;
      break;
    case 'C':
      o.roles = 0;
      o.work = WorkClass::kCopyToDevice;
      break;
    case 'R':
    case 'r':
      o.roles = letter == 'R' ? kRoleReduction : 0;
      o.work = WorkClass::kCommunication;
      break;
    case 'K':
      o.roles |= kRoleCast;
      break;
    case 'D':
      o.roles = 0;
      o.work = WorkClass::kCopyOther;
      break;
    case 'M':
      o.roles = kRoleBackwardName;
      break;
    case 'm':
      o.roles = 0;
      break;
    default:
      break;
  }
  return o;
}

char LetterOf(StepPhase phase) {
  switch (phase) {
    case StepPhase::kForward:
      return 'f';
    case StepPhase::kBackward:
      return 'b';
    case StepPhase::kOptimizer:
      return 'o';
    default:
      return '.';
  }
}

// The phases of what computes: f, b, o, or '.' for not known; '_' for the rest.
std::string Phases(std::string_view step) {
  std::vector<StepOperation> operations;
  for (const char letter : step) operations.push_back(OperationOf(letter));
  bool annotated = true;
  const std::vector<StepPhase> phases = PhasesOf(operations, operations.size(), {}, annotated);
  EXPECT_FALSE(annotated);
  std::string out;
  for (size_t i = 0; i < operations.size(); ++i) {
    out += operations[i].work == WorkClass::kCompute ? LetterOf(phases[i]) : '_';
  }
  return out;
}

TEST(PhaseInference, OnOneThreadBackwardBeginsWithTheGradientOfTheLoss) {
  EXPECT_EQ(Phases("CabcdefSghgBhgBhFFF"), "_ffffffbbbbbbbbbooo") << "no kernel of the loss has a name";
  EXPECT_EQ(Phases("CabcLdSgBhO"), "_fffffbbbbo") << "the loss is divided after its kernel";
  EXPECT_EQ(Phases("CaSbcLdSgBhO"), "_ffffffbbbbo") << "the model fills something, too";
  EXPECT_EQ(Phases("CabcLSSBhO"), "_ffffbbbbo") << "what backward fills right after it is small, too";
}

TEST(PhaseInference, OnOneThreadItIsNotKnownWhereAGradientComesFromElsewhere) {
  EXPECT_EQ(Phases("CabcdghBhBO"), "_.........o");
  EXPECT_EQ(Phases("CabWBhBO"), "_fffbbbo") << "backward's first kernel follows forward's last one";
  EXPECT_EQ(Phases("CabWghBhBO"), "_........o") << "both have names, with others in between";
  EXPECT_EQ(Phases("CabcLghBhBO"), "_ffffbbbbbo") << "the loss has a name, and backward comes after it";
}

TEST(PhaseInference, OnOneThreadForwardComesAgainWhereGradientsAreAccumulated) {
  EXPECT_EQ(Phases("CabcLSgBhCabcLSgBhF"), "_ffffbbbb_ffffbbbbo");
  EXPECT_EQ(Phases("CabcdSgBhCabcdSgBhCabcdSgBhF"), "_ffffbbbb_ffffbbbb_ffffbbbbo")
      << "without a loss's name";
  EXPECT_EQ(Phases("CabcLSgBbcBhF"), "_ffffbbbbbbbo") << "a part of forward, for checkpointing";
  EXPECT_EQ(Phases("CabcLSgBhCadkLSgBhF"), "_........_........o")
      << "another forward: nothing says where it begins";
}

TEST(PhaseInference, OnOneThreadTheOptimizerBeginsWithTheGradientsNorm) {
  EXPECT_EQ(Phases("CabLSgBhNkFF"), "_fffbbbboooo");
  EXPECT_EQ(Phases("CabLSgBhSNkFF"), "_fffbbbbooooo") << "with the zeros that it begins with";
  EXPECT_EQ(Phases("CaNbLSgBhF"), "_ffffbbbbo") << "the model takes a norm";
  EXPECT_EQ(Phases("CabLSgBOhBO"), "_.........o") << "two optimizers: whose backward is it";
}

TEST(PhaseInference, OnOneThreadWithoutAnyBackwardNothingIsKnown) {
  EXPECT_EQ(Phases("CabcLd"), "_.....") << "an evaluation";
}

TEST(PhaseInference, OtherProgramsNameTheirKernels) { EXPECT_EQ(Phases("CmmmMMMmm"), "_fffbbbbb"); }

TEST(PhaseInference, WhatAutogradsThreadLaunchesIsBackward) {
  EXPECT_EQ(Phases("CabcSTTTFF"), "_fffbbbboo");
  EXPECT_EQ(Phases("CabcTtTTabO"), "_fffbbbbooo") << "lists of gradients are divided in hooks";
}

TEST(PhaseInference, WhatReducesGradientsAfterAutogradIsBackward) {
  EXPECT_EQ(Phases("CabcTTTaRNrkO"), "_fffbbbb_o_oo");
  EXPECT_EQ(Phases("CabcTTTarNkO"), "_fffbbbo_ooo") << "a norm's few bytes are no gradients";
  EXPECT_EQ(Phases("CabcTTTaOR"), "_fffbbboo_") << "parameters are averaged after the update";
  EXPECT_EQ(Phases("CabcTTTaRAbcNO"), "_fffbbbb_ooooo") << "the optimizer's part of them";
  EXPECT_EQ(Phases("CabcTTTARabcTTTARNO"), "_fffbbbb_fffbbbb_oo") << "after each micro-batch";
  EXPECT_EQ(Phases("CabcTTTaRDDabcTTTaRDDNO"), "_fffbbbb___fffbbbb___oo") << "and copied back";
  EXPECT_EQ(Phases("CabcTTTaRDKNO"), "_fffbbbb__ooo") << "the norm's cast";
  EXPECT_EQ(Phases("CabcTTTARabcTTTNO"), "_fffbbbf_fffbbboo")
      << "activations are, too, but not after the last";
  EXPECT_EQ(Phases("CabAcTTTaNO"), "_ffffbbbooo") << "the model puts something together, too";
  EXPECT_EQ(Phases("CabLSgBhRAbcNO"), "_fffbbbb_ooooo") << "on one thread, too";
  EXPECT_EQ(Phases("CabLSgBhRbcNO"), "_fff...._....") << "the same on one thread";
  EXPECT_EQ(Phases("CabLSgBhRNrkO"), "_fffbbbb_o_oo") << "nothing in between";
  EXPECT_EQ(Phases("CabcTTTaRbcNO"), "_fff...._....") << "copies of gradients, or of the update";
}

}  // namespace
}  // namespace gpuprobe::model
