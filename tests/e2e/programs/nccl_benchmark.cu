// Measures NCCL as NVIDIA's nccl-tests do, and prints what they would: size, time, algorithm and bus
// bandwidth.
//
// usage: nccl_benchmark TEST [DEVICES]   sendrecv, alltoallv, alltoallv_half, hypercube or all_reduce; one
// rank for each process
//                                        (launched as ddp_train is), or for each of DEVICES devices of this
//                                        one
//
// A kernel before the first call (GPUSIM_KERNELS says how long it takes) holds the streams until everything
// is launched, so that the time is that of the calls and not of their launches: nccl-tests' own time contains
// both.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr int kWarmups = 5;
constexpr int kIterations = 20;
constexpr size_t kLargest = size_t{64} << 20;

__global__ void HoldStream() {}

struct Rank {
  int device = 0;
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  char* send = nullptr;
  char* receive = nullptr;
};

struct Job {
  int ranks = 0;
  std::vector<Rank> own;
};

// Half of what alltoallv_half sends is the same for all ranks, also for the sender itself.
bool half_is_equal = false;

// What rank `from` sends to rank `to` of `total` bytes: the further, the more.
size_t Share(int from, int to, int ranks, size_t total) {
  const auto distance = static_cast<size_t>((to - from + ranks) % ranks);
  const size_t distances = static_cast<size_t>(ranks) * static_cast<size_t>(ranks - 1) / 2;
  const size_t by_distance = half_is_equal ? total / 2 : total;
  return (total - by_distance) / static_cast<size_t>(ranks) + by_distance * distance / distances;
}

void Exchange(const Rank& r, size_t sent, int to, size_t received, int from) {
  CHECK_NCCL(ncclSend(r.send, sent, ncclChar, to, r.comm, r.stream));
  CHECK_NCCL(ncclRecv(r.receive, received, ncclChar, from, r.comm, r.stream));
}

// One group for all of this process's ranks.
template <typename Calls>
void Grouped(const Job& job, Calls calls) {
  CHECK_NCCL(ncclGroupStart());
  for (const Rank& r : job.own) calls(r);
  CHECK_NCCL(ncclGroupEnd());
}

void Iterate(const std::string& test, const Job& job, size_t size) {
  const int n = job.ranks;
  if (test == "sendrecv") {
    Grouped(job, [&](const Rank& r) { Exchange(r, size, (r.rank + 1) % n, size, (r.rank + n - 1) % n); });
  } else if (test == "alltoallv" || test == "alltoallv_half") {
    Grouped(job, [&](const Rank& r) {
      for (int peer = 0; peer < n; ++peer) {
        if (Share(r.rank, peer, n, size) > 0)
          Exchange(r, Share(r.rank, peer, n, size), peer, Share(peer, r.rank, n, size), peer);
      }
    });
  } else if (test == "hypercube") {
    for (int mask = 1; mask < n; mask <<= 1) {
      const size_t bytes = size / static_cast<size_t>(n) * static_cast<size_t>(mask);
      Grouped(job, [&](const Rank& r) { Exchange(r, bytes, r.rank ^ mask, bytes, r.rank ^ mask); });
    }
  } else if (test == "all_reduce") {
    Grouped(job, [&](const Rank& r) {
      CHECK_NCCL(ncclAllReduce(r.send, r.receive, size, ncclChar, ncclSum, r.comm, r.stream));
    });
  } else {
    std::fprintf(stderr, "nccl_benchmark: no test %s\n", test.c_str());
    std::exit(2);
  }
}

// Bytes over time is the algorithm bandwidth, times the factor the bus bandwidth.
struct Definition {
  double bytes = 0;
  double factor = 1;
};
Definition DefinitionOf(const std::string& test, int ranks, size_t size) {
  const auto n = static_cast<double>(ranks);
  const auto bytes = static_cast<double>(size);
  if (test == "hypercube") return {.bytes = bytes / n * (n - 1), .factor = 1};
  if (test == "all_reduce") return {.bytes = bytes, .factor = 2 * (n - 1) / n};
  if (test == "sendrecv") return {.bytes = bytes, .factor = 1};
  double sent = 0;
  for (int peer = 0; peer < ranks; ++peer) sent += static_cast<double>(Share(0, peer, ranks, size));
  return {.bytes = sent, .factor = (n - 1) / n};
}

void Synchronize(const Job& job) {
  for (const Rank& r : job.own) CHECK_CUDA(cudaStreamSynchronize(r.stream));
}

void Measure(const std::string& test, const Job& job, size_t size) {
  for (int i = 0; i < kWarmups; ++i) Iterate(test, job, size);
  Synchronize(job);
  for (const Rank& r : job.own) {
    CHECK_CUDA(cudaSetDevice(r.device));
    HoldStream<<<1, 1, 0, r.stream>>>();
    CHECK_CUDA(cudaGetLastError());
  }
  // The ranks leave it together.
  Grouped(job, [](const Rank& r) {
    CHECK_NCCL(ncclAllReduce(r.send, r.receive, 1, ncclChar, ncclSum, r.comm, r.stream));
  });
  for (const Rank& r : job.own) CHECK_CUDA(cudaEventRecord(r.begin, r.stream));
  for (int i = 0; i < kIterations; ++i) Iterate(test, job, size);
  for (const Rank& r : job.own) CHECK_CUDA(cudaEventRecord(r.end, r.stream));
  Synchronize(job);
  double us = 0;
  for (const Rank& r : job.own) {
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, r.begin, r.end));
    us += static_cast<double>(ms) * 1000 / kIterations / static_cast<double>(job.own.size());
  }
  const Definition definition = DefinitionOf(test, job.ranks, size);
  const double algorithm = definition.bytes / us / 1000;
  std::printf("%s %.0f %.3f %.4f %.4f\n", test.c_str(), definition.bytes, us, algorithm,
              algorithm * definition.factor);
  std::fflush(stdout);
}

Job Make(int devices) {
  Job job;
  if (devices > 0) {
    std::vector<ncclComm_t> comms(static_cast<size_t>(devices));
    CHECK_NCCL(ncclCommInitAll(comms.data(), devices, nullptr));
    job.ranks = devices;
    for (int i = 0; i < devices; ++i) {
      Rank& r = job.own.emplace_back();
      r.device = r.rank = i;
      r.comm = comms[static_cast<size_t>(i)];
    }
  } else {
    const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
    gpuprobe::samples::ChooseDevice(identity);
    job.ranks = identity.world_size;
    Rank& r = job.own.emplace_back();
    CHECK_CUDA(cudaGetDevice(&r.device));
    r.rank = identity.rank;
    r.comm = gpuprobe::samples::JoinWorld(identity, "");
  }
  for (Rank& r : job.own) {
    CHECK_CUDA(cudaSetDevice(r.device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&r.begin));
    CHECK_CUDA(cudaEventCreate(&r.end));
    CHECK_CUDA(cudaMalloc(&r.send, kLargest));
    CHECK_CUDA(cudaMalloc(&r.receive, kLargest));
  }
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  half_is_equal = std::string(argv[1]) == "alltoallv_half";
  const Job job = Make(argc > 2 ? std::atoi(argv[2]) : 0);
  for (const size_t size : {size_t{4} << 20, kLargest}) Measure(argv[1], job, size);
  for (const Rank& r : job.own) CHECK_NCCL(ncclCommDestroy(r.comm));
  return 0;
}
