// Jobs that hang for reasons that public bug reports name, which other waits hide. Launched as ddp_train is.
//
// usage: hang_causes WHAT [SECONDS]
//   send-send           ranks 0 and 1 exchange in groups, then each sends before it receives, outside of one
//   send-ring           every rank sends to the next before it receives from the one before
//   opposite-order      ranks 0 and 1 reduce on two communicators, in opposite order
//   extra-barrier       rank 0 meets the others in one barrier more, and they sleep for SECONDS
//   uneven              the last rank has one batch fewer than the others, and exits
//   mismatch-then-hang  the last rank reduces two elements fewer once; later rank 1 never comes
//   mesh                rows, then columns of a 2 x 2 mesh; rank 3 does not come to its row
//   subset              all but the last rank reduce among themselves, and nothing hangs
//   slow                the last rank comes SECONDS late, again and again
//   no-join             all but the last rank create a second communicator with it
//   no-split            all but the last rank split the communicator

#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr size_t kCount = 8 << 20;  // as much as needs a receiver before a send is over
constexpr size_t kBucket = 1 << 16;
constexpr int kSteps = 10;

struct Rank {
  int rank = 0;
  int ranks = 1;
  ncclComm_t world = nullptr;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;
  double seconds = 0;

  bool last() const { return rank == ranks - 1; }
};

void Sleep(double seconds) { usleep(static_cast<useconds_t>(seconds * 1e6)); }

[[noreturn]] void NeverCome() {
  for (;;) Sleep(1);
}

void Wait(const Rank& r) { CHECK_CUDA(cudaStreamSynchronize(r.stream)); }

void Reduce(const Rank& r, ncclComm_t comm, size_t count = kBucket) {
  CHECK_NCCL(ncclAllReduce(r.buffer, r.buffer, count, ncclFloat, ncclSum, comm, r.stream));
}

void Send(const Rank& r, int peer) {
  CHECK_NCCL(ncclSend(r.buffer, kCount, ncclFloat, peer, r.world, r.stream));
}

void Receive(const Rank& r, int peer) {
  CHECK_NCCL(ncclRecv(r.buffer + kCount, kCount, ncclFloat, peer, r.world, r.stream));
}

ncclComm_t Split(const Rank& r, int color, int key) {
  ncclComm_t comm = nullptr;
  CHECK_NCCL(ncclCommSplit(r.world, color, key, &comm, nullptr));
  return comm;
}

void SendSend(const Rank& r) {
  if (r.rank > 1) return;
  const int peer = 1 - r.rank;
  for (int step = 0; step < kSteps; ++step) {
    CHECK_NCCL(ncclGroupStart());
    Send(r, peer);
    Receive(r, peer);
    CHECK_NCCL(ncclGroupEnd());
  }
  Send(r, peer);
  Receive(r, peer);
}

void SendRing(const Rank& r) {
  Reduce(r, r.world);
  Send(r, (r.rank + 1) % r.ranks);
  Receive(r, (r.rank + r.ranks - 1) % r.ranks);
}

void OppositeOrder(const Rank& r) {
  const int color = r.rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR;
  ncclComm_t first = Split(r, color, r.rank);
  ncclComm_t second = Split(r, color, r.rank);
  if (r.rank > 1) return;
  for (int step = 0; step <= kSteps; ++step) {
    const bool turned = step == kSteps && r.rank == 1;
    if (turned) Reduce(r, second, kBucket / 2);
    Reduce(r, first);
    if (!turned) Reduce(r, second, kBucket / 2);
    if (step < kSteps) Wait(r);
  }
}

void ExtraBarrier(const Rank& r) {
  for (int step = 0; step < kSteps; ++step) Reduce(r, r.world);
  for (int barrier = r.rank == 0 ? 0 : 1; barrier < 2; ++barrier) {
    Wait(r);
    Reduce(r, r.world, 1);
  }
  Wait(r);
  Sleep(r.seconds);
}

void Uneven(const Rank& r) {
  for (int step = r.last() ? 1 : 0; step < kSteps; ++step) {
    CHECK_CUDA(cudaMemsetAsync(r.buffer, 0, 1 << 20, r.stream));
    Reduce(r, r.world);
    Wait(r);
  }
}

void MismatchThenHang(const Rank& r) {
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - 1 && r.rank == 1) NeverCome();
    Reduce(r, r.world, step == 2 && r.last() ? kBucket - 2 : kBucket);
    Wait(r);
  }
}

void Mesh(const Rank& r) {
  ncclComm_t row = Split(r, r.rank / 2, r.rank);
  ncclComm_t column = Split(r, r.rank % 2, r.rank);
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - 1 && r.rank == 3) NeverCome();
    for (ncclComm_t comm : {row, column}) {
      Reduce(r, comm);
      Wait(r);
    }
  }
}

void Subset(const Rank& r) {
  ncclComm_t some = Split(r, r.last() ? NCCL_SPLIT_NOCOLOR : 0, r.rank);
  for (int step = 0; step < kSteps; ++step) {
    Reduce(r, r.world);
    Wait(r);
  }
  if (!r.last()) Reduce(r, some);
  Wait(r);
  Sleep(r.seconds);
}

void Slow(const Rank& r) {
  for (int step = 0; step < kSteps; ++step) {
    if (r.last()) Sleep(r.seconds);
    Reduce(r, r.world);
    Wait(r);
  }
}

void Steps(const Rank& r) {
  for (int step = 0; step < kSteps; ++step) {
    Reduce(r, r.world);
    Wait(r);
  }
}

void NoJoin(const Rank& r) {
  Steps(r);
  if (r.last()) NeverCome();
  gpuprobe::samples::JoinWorld(gpuprobe::samples::FindRankIdentity(), "second-id");
}

void NoSplit(const Rank& r) {
  Steps(r);
  if (r.last()) NeverCome();
  Split(r, r.rank % 2, r.rank);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(identity);
  Rank r{.rank = identity.rank, .ranks = identity.world_size, .seconds = argc > 2 ? std::atof(argv[2]) : 0};
  r.world = gpuprobe::samples::JoinWorld(identity, "");
  CHECK_CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&r.buffer, 2 * kCount * sizeof(float)));
  constexpr struct {
    const char* name;
    void (*run)(const Rank&);
  } kJobs[] = {{"send-send", SendSend},
               {"send-ring", SendRing},
               {"opposite-order", OppositeOrder},
               {"extra-barrier", ExtraBarrier},
               {"uneven", Uneven},
               {"mismatch-then-hang", MismatchThenHang},
               {"mesh", Mesh},
               {"subset", Subset},
               {"slow", Slow},
               {"no-join", NoJoin},
               {"no-split", NoSplit}};
  for (const auto& job : kJobs) {
    if (what == job.name) job.run(r);
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  return 0;
}
