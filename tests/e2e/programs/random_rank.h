// One rank of a random program: its buffers, streams, communicators and graphs; and the ranks that one thread
// drives together.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/e2e/programs/hard_way_rank.h"
#include "tests/e2e/programs/random_plan.h"

namespace random_collectives {

inline constexpr size_t kNoiseBytes = 4096;
// Noise buffers for each stream, for the branches' per-thread streams, and for captured work.
inline constexpr int kCapturedNoise = kStreams + kPlainStreams;
inline constexpr int kNoises = kCapturedNoise + 1;

// Copies on one stream move bytes within one of these.
struct Noise {
  char* device = nullptr;
  char* host = nullptr;
};

struct RankState {
  int rank = 0;
  int device = 0;
  char* in = nullptr;
  char* out = nullptr;
  std::array<cudaStream_t, kStreams> streams = {};
  std::array<Noise, kNoises> noises;
  std::map<int, ncclComm_t> comms;
  std::map<int, cudaGraph_t> graphs;
  std::map<int, cudaGraphExec_t> execs;
  uint64_t refused = 0;

  void Use() const { CHECK(cudaSetDevice(device)); }
};

void SetUp(RankState& state);
// The sum over what the copies moved.
uint64_t TearDown(RankState& state);

// Which streams the ranks use.
struct Where {
  int branch = -1;
  bool captured = false;
  bool forked = false;

  size_t StreamOf(const RankState& rank, uint64_t salt) const;
  const Noise& NoiseOf(const RankState& rank, size_t stream) const;
};

// What all ranks of the program know.
struct Shared {
  Plan plan;
  std::vector<ncclUniqueId> ids;

  // -1: not a member.
  int RankIn(int comm, int rank) const;
};

// The ranks that one thread drives.
struct Crew {
  const Shared& shared;
  std::vector<RankState*> ranks;
  Where where = {};

  bool IsIn(const RankState& rank, int comm) const { return shared.RankIn(comm, rank.rank) >= 0; }
  // Its ranks in the communicator.
  std::vector<RankState*> Here(int comm) const;
};

// The later stream waits for what is on the earlier one.
void Order(cudaStream_t earlier, cudaStream_t later);

inline bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }
inline void Take(ncclResult_t result) {
  if (result != ncclInProgress) CHECK(result);
}

}  // namespace random_collectives
