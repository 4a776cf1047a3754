// A loop of collectives in which one rank, or all of them, do something that keeps the others waiting.
//
// usage: collective_troubles [replay-|steps-]WHAT [SECONDS]   launched as ddp_train is; the last rank is the
// odd one With `steps-` each call is made in a range "step". With `replay-` a call is two reductions that
// were captured into a CUDA graph before, launched together.
//   fine        nothing happens
//   skip        the odd rank leaves the loop before call 5 and sleeps in range "eval"
//   size        the odd rank passes another count to call 5; all stay for SECONDS
//   datatype    the odd rank passes as many bytes of another type to call 5; all stay for SECONDS
//   operation   the odd rank calls Broadcast as its call 5; all stay for SECONDS
//   held        the odd rank waits for a file "go" before call 5, and all wait for a file "end" at the end
//   spin        the odd rank computes on the host before call 5, for good
//   pipe        the odd rank reads from the named pipe "pipe", to which nobody writes, before call 5
//   chain       every rank receives from the next and sends to the one before; the odd one leaves as in skip
//   exchange    all send to the next and receive from the one before in a group; the odd one leaves, too
//   queued      every rank copies a little before call 5, and does not wait for that
//   copies      the odd rank copies to the host a little at a time for SECONDS before call 5
//   files       the odd rank writes a file for SECONDS before call 5
//   long        a copy of SECONDS runs before call 5 on every rank (GPUSIM_PCIE=1MB/s)
//   long-alone  it runs on the odd rank alone, which waits for it

#include <cuda_runtime.h>
#include <fcntl.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr size_t kCount = 1 << 16;
constexpr int kCalls = 10;
constexpr int kOddCall = 5;
constexpr size_t kBytesPerSecond = 1'000'000;  // GPUSIM_PCIE of the long copy

using Clock = std::chrono::steady_clock;

struct Rank {
  gpuprobe::samples::RankIdentity identity;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
  float* host = nullptr;
  size_t host_bytes = 0;
};

void Reduce(const Rank& rank, size_t count, ncclDataType_t type = ncclFloat) {
  CHECK_NCCL(ncclAllReduce(rank.buffer, rank.buffer, count, type, ncclSum, rank.comm, rank.stream));
}

void Transfer(const Rank& rank, bool sends, int peer) {
  if (sends) {
    CHECK_NCCL(ncclSend(rank.buffer, kCount, ncclFloat, peer, rank.comm, rank.stream));
  } else {
    CHECK_NCCL(ncclRecv(rank.buffer, kCount, ncclFloat, peer, rank.comm, rank.stream));
  }
}

void Chain(const Rank& rank) {
  const int me = rank.identity.rank;
  if (me + 1 < rank.identity.world_size) {
    Transfer(rank, false, me + 1);
    CHECK_CUDA(cudaStreamSynchronize(rank.stream));
  }
  if (me > 0) Transfer(rank, true, me - 1);
}

[[noreturn]] void Spin() {
  for (volatile uint64_t n = 0;;) n = n + 1;
}

// Opened for both, so that it is the reading that waits.
void ReadPipe(const char* name) {
  const int pipe = open(name, O_RDWR | O_CLOEXEC);
  char byte = 0;
  if (pipe < 0 || read(pipe, &byte, 1) != 1) std::perror(name);
}

// From the last rank down to the first.
void Line(const Rank& rank) {
  const int me = rank.identity.rank;
  if (me + 1 < rank.identity.world_size) Transfer(rank, false, me + 1);
  if (me > 0) Transfer(rank, true, me - 1);
}

cudaGraph_t Capture(const Rank& rank, const std::string& what, size_t count) {
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
  if (what == "line") {
    Line(rank);
  } else {
    Reduce(rank, count);
    Reduce(rank, count / 2);
  }
  CHECK_CUDA(cudaStreamEndCapture(rank.stream, &graph));
  return graph;
}

cudaGraphExec_t Captured(const Rank& rank, const std::string& what) {
  cudaGraph_t graph = Capture(rank, what, kCount);
  cudaGraphExec_t executable = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(graph));
  return executable;
}

void Update(const Rank& rank, cudaGraphExec_t executable) {
  cudaGraph_t graph = Capture(rank, "", kCount / 4);
  cudaGraphExecUpdateResultInfo info{};
  CHECK_CUDA(cudaGraphExecUpdate(executable, graph, &info));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

void Exchange(const Rank& rank) {
  const int ranks = rank.identity.world_size;
  CHECK_NCCL(ncclGroupStart());
  Transfer(rank, true, (rank.identity.rank + 1) % ranks);
  Transfer(rank, false, (rank.identity.rank + ranks - 1) % ranks);
  CHECK_NCCL(ncclGroupEnd());
}

void Pause(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1000); }

void AwaitFile(const char* path) {
  while (access(path, F_OK) != 0) Pause(10);
}

void WriteFile(Clock::time_point until) {
  std::FILE* file = std::tmpfile();
  const std::vector<char> part(1 << 20, 'x');
  while (Clock::now() < until) {
    std::fwrite(part.data(), 1, part.size(), file);
    std::rewind(file);
    Pause(100);
  }
  std::fclose(file);
}

// Whether the rank goes on with call 5.
bool Trouble(const Rank& rank, const std::string& what, double seconds, bool odd) {
  const auto until = Clock::now() + std::chrono::milliseconds(static_cast<int>(seconds * 1000));
  if (what == "long" || (what == "long-alone" && odd)) {
    CHECK_CUDA(cudaMemcpyAsync(rank.buffer, rank.host, rank.host_bytes, cudaMemcpyHostToDevice, rank.stream));
    if (what == "long-alone") CHECK_CUDA(cudaStreamSynchronize(rank.stream));
  }
  if (what == "queued")
    CHECK_CUDA(cudaMemcpyAsync(rank.buffer, rank.host, 4096, cudaMemcpyHostToDevice, rank.stream));
  if (!odd) return true;
  if (what == "held") AwaitFile("go");
  if (what == "spin") Spin();
  if (what == "pipe") ReadPipe("pipe");
  if (what == "files") WriteFile(until);
  while (what == "copies" && Clock::now() < until) {
    CHECK_CUDA(cudaMemcpyAsync(rank.host, rank.buffer, 4096, cudaMemcpyDeviceToHost, rank.stream));
    CHECK_CUDA(cudaStreamSynchronize(rank.stream));
    Pause(100);
  }
  return what != "skip" && what != "chain" && what != "exchange" && what != "line" && what != "updated";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "fine";
  const bool replay = argument.starts_with("replay-");
  const bool steps = argument.starts_with("steps-");
  const std::string what = replay || steps ? argument.substr(argument.find('-') + 1) : argument;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  Rank rank;
  rank.identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(rank.identity);
  rank.comm = gpuprobe::samples::JoinWorld(rank.identity, "");
  const bool odd = rank.identity.rank == rank.identity.world_size - 1;
  rank.host_bytes = std::max(kCount * sizeof(float), static_cast<size_t>(seconds * kBytesPerSecond));
  CHECK_CUDA(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&rank.buffer, rank.host_bytes));
  CHECK_CUDA(cudaMallocHost(&rank.host, rank.host_bytes));
  cudaGraphExec_t graph = replay ? Captured(rank, what) : nullptr;
  for (int call = 0; call < kCalls; ++call) {
    if (steps) nvtxRangePushA("step");
    if (call == kOddCall - 1 && what == "updated") Update(rank, graph);
    if (call == kOddCall && !Trouble(rank, what, seconds, odd)) {
      nvtxRangePushA("eval");
      std::fprintf(stderr, "rank %d left\n", rank.identity.rank);
      for (;;) Pause(1000);
    }
    if (replay) {
      CHECK_CUDA(cudaGraphLaunch(graph, rank.stream));
    } else if (what == "chain") {
      Chain(rank);
    } else if (what == "exchange") {
      Exchange(rank);
    } else if (call == kOddCall && odd && what == "operation") {
      CHECK_NCCL(ncclBroadcast(rank.buffer, rank.buffer, kCount, ncclFloat, 0, rank.comm, rank.stream));
    } else if (call == kOddCall && odd && what == "datatype") {
      Reduce(rank, kCount, ncclInt32);
    } else {
      Reduce(rank, call == kOddCall && odd && what == "size" ? kCount / 2 : kCount);
    }
    CHECK_CUDA(cudaStreamSynchronize(rank.stream));
    if (steps) nvtxRangePop();
  }
  if (what == "held") AwaitFile("end");
  if (what == "size" || what == "operation" || what == "datatype") Pause(static_cast<int>(seconds * 1000));
  if (replay) CHECK_CUDA(cudaGraphExecDestroy(graph));
  CHECK_CUDA(cudaFreeHost(rank.host));
  CHECK_CUDA(cudaFree(rank.buffer));
  CHECK_CUDA(cudaStreamDestroy(rank.stream));
  CHECK_NCCL(ncclCommDestroy(rank.comm));
  return 0;
}
