// Identifies this process: its rank, its launcher's name for the job, and what a report's conditions need.
//
// It only reads the environment and /proc, so that the rules about which launcher wins have tests of their
// own. Thread: the starting thread. Allocation: none; texts are cut at their fields' size. Failure: a field
// that cannot be found keeps its "not known" value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"

namespace gpuprobe::injector {

struct Identity {
  int32_t rank = -1;
  int32_t local_rank = -1;
  int32_t world_size = 0;
  wire::RankSource rank_source = wire::RankSource::kRankSourceNone;
  char job[256] = {};
  char run[512] = {};  // equal for the processes of one job on this host
  char host[256] = {};
  uint32_t pid = 0;
  uint64_t process_start_ns = 0;
  char executable[1024] = {};
  char command_line[4096] = {};  // arguments, each ended by a zero
  size_t command_line_bytes = 0;
  uint32_t uid = 0;
};

// How variables are looked up; getenv but in tests.
using EnvironmentLookup = const char* (*)(const char* name);

// Rank, local rank, world size and job: GPUPROBE_RANK, then torchrun, Open MPI, PMI/PMIx, Slurm. The first
// that names a rank wins; values that it lacks are taken from the next one that has them.
void FindRank(EnvironmentLookup lookup, Identity* identity) noexcept;

// When this process was made, to the clock tick (10 ms); 0: not known.
uint64_t ProcessStartNs() noexcept;
// What exactly the processes of one job on this host share: the launcher's job id, with the step where a job
// has several; without an id that distinguishes jobs, the rendezvous and the parent, or the session.
struct ProcessIds {
  int32_t parent = 0;
  int32_t session = 0;
  int32_t group = 0;
};
void FindRun(EnvironmentLookup lookup, const ProcessIds& ids, Identity* identity) noexcept;

// All of it, for this process.
void FindIdentity(Identity* identity) noexcept;

}  // namespace gpuprobe::injector
