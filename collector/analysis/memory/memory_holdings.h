// The contents of a rank's memory at its peak: weights, gradients, optimizer state, activations, NCCL's
// buffers.
//
// When an allocation was made and freed (model/memory/memory_lifetimes.h) does not say what it is: a program
// may allocate weights, optimizer state and its input before the first step. So a category is only named
// where a second fact agrees. Example: 51.5 MiB are allocated before the first step. AllReduce reduces 12 MiB
// a step in backward, so there are 12 MiB of gradients and as much of weights; an Adam kernel runs in every
// step, and Adam keeps two values for each weight, so 24 MiB are its state. The other 3.5 MiB are "other,
// allocated before the first step". Nothing is named that the part cannot hold.
//
// A program that reduces nothing, alone on its GPU, has one such fact: an Adam kernel in every step, and
// twice as much kept from the first steps on as was allocated before them. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collector/analysis/communication/call_timing.h"
#include "collector/report/memory.h"
#include "collector/report/ranks.h"

namespace gpuprobe::analysis {

struct Report;

// The second facts, for one rank.
struct HoldingEvidence {
  // Bytes of all gradients of the weights that this rank has a part in. 0: not known.
  double gradient_bytes = 0;
  // Ranks that share the optimizer's state; 1: each keeps its own. With ReduceScatter and AllGather.
  int state_shards = 1;
  int weight_shards = 1;                // ranks that share the weights (FSDP, ZeRO stage 3)
  uint32_t gradient_element_bytes = 0;  // 0: several kinds
  std::string reduced_by;               // "AllReduce"
  int reductions_per_step = 1;          // of the same gradients
  double buckets = 0;                   // calls per step of PyTorch's that reduce gradients; 0: none
  Optimizer optimizer = Optimizer::kUnknown;
};

std::vector<MemoryLifetimesReport::Holding> HoldingsOf(const MemoryLifetimesReport& lifetimes,
                                                       const HoldingEvidence& evidence);

// Of which a kernel's name speaks.
Optimizer OptimizerNamed(std::string_view kernel);

// Picks the rank's collectives that reduce gradients: the operation that moves most, by the communicators'
// roles, and is not also called in forward.
HoldingEvidence EvidenceOf(const RankReport& rank, const std::set<CallSize>& in_forward,
                           const CommunicationReport& communication = {});

// For every rank and device of the report.
void SetHoldings(const std::set<CallSize>& in_forward, Report& report);

}  // namespace gpuprobe::analysis
