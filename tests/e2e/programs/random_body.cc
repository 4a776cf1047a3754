#include "tests/e2e/programs/random_body.h"

#include <nvtx3/nvToolsExt.h>

#include "tests/e2e/programs/random_kernel.h"

namespace random_collectives {
namespace {

void Copy(uint64_t choice, const Noise& noise, size_t bytes, cudaStream_t stream) {
  char* half = noise.device + kNoiseBytes / 2;
  if (choice % 3 == 0) {
    CHECK(cudaMemcpyAsync(noise.device, noise.host, bytes, cudaMemcpyHostToDevice, stream));
  } else if (choice % 3 == 1) {
    CHECK(cudaMemcpyAsync(noise.host, half, bytes, cudaMemcpyDeviceToHost, stream));
  } else {
    CHECK(cudaMemcpyAsync(half, noise.device, bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

void Allocate(uint64_t choice, cudaStream_t stream) {
  void* memory = nullptr;
  const size_t bytes = 512 + choice % 100000;
  if (choice % 3 == 0) {
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaFree(memory));
  } else if (choice % 3 == 1) {
    CHECK(cudaMallocAsync(&memory, bytes, stream));
    CHECK(cudaFreeAsync(memory, stream));
  } else {
    CHECK(cudaMallocHost(&memory, bytes));
    CHECK(cudaFreeHost(memory));
  }
}

void Ask(ncclComm_t comm) {
  int number = 0;
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommCount(comm, &number));
  CHECK(ncclCommUserRank(comm, &number));
  CHECK(ncclCommCuDevice(comm, &number));
  CHECK(ncclGetVersion(&number));
  CHECK(ncclCommGetAsyncError(comm, &state));
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
}

void Register(ncclComm_t comm, size_t bytes) {
  void* memory = nullptr;
  void* handle = nullptr;
  ncclWindow_t window = nullptr;
  CHECK(ncclMemAlloc(&memory, bytes));
  CHECK(ncclCommRegister(comm, memory, bytes, &handle));
  CHECK(ncclCommWindowRegister(comm, memory, bytes, &window, 0));
  CHECK(ncclCommWindowDeregister(comm, window));
  CHECK(ncclCommDeregister(comm, handle));
  CHECK(ncclMemFree(memory));
}

}  // namespace

void BodyRunner::Run(const Body& body) {
  for (const Item& item : body) Do(item);
  calls_.Settle();
}

void BodyRunner::Do(const Item& item) {
  switch (item.kind) {
    case ItemKind::kCall:
      return calls_.Do(item.call);
    case ItemKind::kBadCall:
      return calls_.DoBad(item);
    case ItemKind::kGroupStart:
      return calls_.StartGroup();
    case ItemKind::kGroupEnd:
      return calls_.EndGroup(false);
    case ItemKind::kSimulateEnd:
      return calls_.EndGroup(true);
    default:
      break;
  }
  calls_.Settle();
  for (RankState* rank : crew_.Here(item.call.comm)) {
    rank->Use();
    Do(item, *rank);
  }
}

void BodyRunner::Do(const Item& item, RankState& rank) {
  const uint64_t choice = Mix(item.salt, 1000 + static_cast<uint64_t>(rank.rank));
  const size_t at = crew_.where.StreamOf(rank, item.salt);
  const Noise& noise = crew_.where.NoiseOf(rank, at);
  cudaStream_t stream = rank.streams[at];
  const size_t bytes = 1 + choice % (kNoiseBytes / 2);
  switch (item.kind) {
    case ItemKind::kKernel:
      LaunchKernel(static_cast<int>(1 + choice % 4), noise.device, stream);
      break;
    case ItemKind::kCopy:
      Copy(choice, noise, bytes, stream);
      break;
    case ItemKind::kFill:
      CHECK(cudaMemsetAsync(noise.device, static_cast<int>(choice % 256), bytes, stream));
      break;
    case ItemKind::kEvent:
      return Order(stream, rank.streams[crew_.where.StreamOf(rank, item.salt + 1)]);
    case ItemKind::kAllocate:
      // Only where one thread does, allocations have an order that can be compared.
      if (crew_.where.branch < 0) Allocate(choice, stream);
      return;
    case ItemKind::kRange:
      return Range(choice);
    case ItemKind::kAsk:
      return Ask(rank.comms.at(item.call.comm));
    case ItemKind::kRegister:
      // A release waits for the whole device: for branches that wait for those of other ranks.
      if (crew_.where.branch < 0) Register(rank.comms.at(item.call.comm), bytes);
      return;
    case ItemKind::kSynchronize:
      CHECK(choice % 3 == 0 && crew_.where.branch < 0 ? cudaDeviceSynchronize()
                                                      : cudaStreamSynchronize(stream));
      break;
    default:
      break;
  }
}

void BodyRunner::Range(uint64_t choice) {
  if (choice % 3 == 0) nvtxMarkA("here");
  if (choice % 3 == 1) {
    nvtxRangePushA("forward");
    ++ranges_;
  }
  if (choice % 3 == 2 && ranges_ > 0) {
    nvtxRangePop();
    --ranges_;
  }
}

}  // namespace random_collectives
