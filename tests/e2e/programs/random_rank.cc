#include "tests/e2e/programs/random_rank.h"

#include <algorithm>

namespace random_collectives {

void SetUp(RankState& state) {
  state.Use();
  CHECK(cudaMalloc(&state.in, hard_way::kBufferBytes));
  CHECK(cudaMalloc(&state.out, hard_way::kBufferBytes));
  for (int i = 0; i < kPlainStreams; ++i)
    CHECK(cudaStreamCreateWithFlags(&state.streams[static_cast<size_t>(i)], cudaStreamNonBlocking));
  CHECK(cudaStreamCreate(&state.streams[kPlainStreams]));
  state.streams[kPlainStreams + 1] = nullptr;
  state.streams[kPlainStreams + 2] = cudaStreamLegacy;
  state.streams[kPlainStreams + 3] = cudaStreamPerThread;
  for (Noise& noise : state.noises) {
    CHECK(cudaMalloc(&noise.device, kNoiseBytes));
    CHECK(cudaMemset(noise.device, 1, kNoiseBytes));
    CHECK(cudaMallocHost(&noise.host, kNoiseBytes));
    for (size_t i = 0; i < kNoiseBytes; ++i)
      noise.host[i] = static_cast<char>(i * 7 + static_cast<size_t>(state.rank));
  }
  CHECK(cudaDeviceSynchronize());
}

// The sum over what the copies moved.
uint64_t TearDown(RankState& state) {
  state.Use();
  CHECK(cudaDeviceSynchronize());
  uint64_t sum = 0;
  std::vector<char> bytes(kNoiseBytes);
  for (size_t i = 0; i < state.noises.size(); ++i) {
    const Noise& noise = state.noises[i];
    CHECK(cudaMemcpy(bytes.data(), noise.device, kNoiseBytes, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < kNoiseBytes && i != kCapturedNoise; ++at)
      sum = sum * 31 + static_cast<unsigned char>(bytes[at]) +
            uint64_t{256} * static_cast<unsigned char>(noise.host[at]);
    CHECK(cudaFree(noise.device));
    CHECK(cudaFreeHost(noise.host));
  }
  CHECK(cudaFree(state.in));
  CHECK(cudaFree(state.out));
  for (int i = 0; i <= kPlainStreams; ++i) CHECK(cudaStreamDestroy(state.streams[static_cast<size_t>(i)]));
  return sum;
}

size_t Where::StreamOf(const RankState& rank, uint64_t salt) const {
  const uint64_t choice = Mix(salt, static_cast<uint64_t>(rank.rank));
  const int second = branch >= 0 ? kStreams - 1 : 1;
  if (captured) return static_cast<size_t>(forked && choice % 2 == 0 ? second : std::max(branch, 0));
  if (branch >= 0) return static_cast<size_t>(choice % 3 == 0 ? kStreams - 1 : branch);
  return choice % kStreams;
}

const Noise& Where::NoiseOf(const RankState& rank, size_t stream) const {
  if (captured) return rank.noises[kCapturedNoise];
  const bool of_branch = branch >= 0 && stream == kStreams - 1;
  return rank.noises[of_branch ? kStreams + static_cast<size_t>(branch) : stream];
}

int Shared::RankIn(int comm, int rank) const {
  const std::vector<int>& members = plan.members.at(comm);
  const auto at = std::find(members.begin(), members.end(), rank);
  return at == members.end() ? -1 : static_cast<int>(at - members.begin());
}

std::vector<RankState*> Crew::Here(int comm) const {
  std::vector<RankState*> here;
  for (RankState* rank : ranks) {
    if (IsIn(*rank, comm)) here.push_back(rank);
  }
  return here;
}

void Order(cudaStream_t earlier, cudaStream_t later) {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventRecord(event, earlier));
  CHECK(cudaStreamWaitEvent(later, event, 0));
  CHECK(cudaEventDestroy(event));
}

}  // namespace random_collectives
