// Infers a job's pattern of parallelism from its operations, their communicators and their places in the
// step.
//
// Separate because findings and screens name it, and advice follows from it: remedies for the reduction of
// gradients do not help calls inside the layers. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collector/analysis/report/collectives.h"
#include "collector/analysis/report/communication.h"

namespace gpuprobe::analysis {

// The purpose of calls.
enum class CommunicationRole : uint8_t {
  kData,            // gradients, in backward
  kSharded,         // weights that are gathered for each layer, and gradients that are scattered
  kSharedState,     // gradients that are scattered, and weights that are gathered when they are updated
  kTensor,          // results of layers that are split over ranks
  kTensorSequence,  // as kTensor, with the sequence split between layers
  kExpert,          // tokens to experts
  kPipeline,        // from stage to stage
  kOther
};

// `calls`: of all operations of the job, since gathers are for weights or for activations by what else there
// is.
CommunicationRole RoleOf(const ExposedCalls& of, const std::vector<ExposedCalls>& calls);
// "data parallel (DDP)"; empty if there is no pattern.
std::string PatternName(CommunicationRole role);

// Where steps are known, from the calls that they make; else from the operations alone.
std::vector<std::string> PatternOf(const std::vector<ExposedCalls>& calls,
                                   const std::vector<CollectiveReport>& collectives);

// Bytes of each operation, of all; sends and receives are one.
std::map<std::string, double> BytesShareOf(const std::vector<CollectiveReport>& collectives);

}  // namespace gpuprobe::analysis
