// A day of a cluster as a plan: which jobs run when, on which GPUs, and what is wrong with each. A pure
// function of seed and size.
//
// Example: of 40 jobs, four are on a host whose GPU 5 is slow all day, the repeat offender. Fourteen have a
// fault of their own, some of them hang or crash and are started again. One in six is another attempt of the
// job before it, as it was or a few percent slower. The rest is healthy. No two jobs have the same model,
// batch, network or noise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collector/simulate/simulation.h"
#include "collector/simulate/training_job.h"

namespace gpuprobe::simulate {

// What is wrong with a job. Names are those of the truth file.
enum class Fault : uint8_t {
  kNone,
  kSlowGpu,
  kSlowNetwork,
  kSlowInput,    // of all ranks
  kLateInput,    // of one
  kLateRank,     // its host launches late
  kMoreWork,     // for one rank
  kGarbage,      // Python's collector pauses each rank now and then
  kTinyKernels,  // launching them takes longer than they run
  kHangMissing,
  kHangMismatch,
  kHangAllIssued,
  kOutOfMemory,
  kRankDies,
  kCount
};
std::string_view NameOf(Fault fault);
bool EndsTheJob(Fault fault);
// Somebody can be named for it.
bool IsOfOneRank(Fault fault);

struct PlannedJob {
  std::string name;  // as its launcher tells all hosts
  int attempt = 1;
  double begins_h = 0;  // hours after the day's beginning
  uint64_t seed = 0;
  TrainingJob job;  // without its fault
  Placement placement;
  int many_hosts = 0;  // above 0: the job's two hosts stand for so many (many_hosts.h)
  Fault fault = Fault::kNone;
  int faulty_rank = 0;    // of a fault of one rank
  double severity = 0.5;  // 0 to 1
  double from = 0;        // share of the steps before it begins
  bool has_repeat_offender = false;
};

struct ClusterDay {
  std::string offender_host;
  int offender_gpu = 0;
  std::vector<PlannedJob> jobs;  // by the hour
};

// REQUIRES: jobs >= kFewestJobs (request.h).
ClusterDay PlanDay(uint64_t seed, int jobs, double hours);

// The job with its fault, `strength` times as severe as planned.
TrainingJob WithFault(const PlannedJob& planned, double strength);
// What it is measured against: the job as planned; of tiny kernels, one whose launches cost hardly anything.
TrainingJob WithoutFault(const PlannedJob& planned, double strength);

}  // namespace gpuprobe::simulate
