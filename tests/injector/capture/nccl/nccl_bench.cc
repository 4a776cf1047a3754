// Cost that the probe adds to one NCCL call on the application's thread: a call of its own with one kernel,
// and a group of eight.
#include <benchmark/benchmark.h>

#include "injector/capture/nccl/wrappers.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "tests/injector/support/lifecycle.h"

namespace gpuprobe::injector::nccl {
namespace {

using Nccl = Wrappers<kFirstProviderWay>;

void LaunchOne() {
  const Guard guard;
  if (guard) {
    NoteKernelLaunch(
        guard.thread(),
        {.name = "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
         .stream = nullptr,
         .context = nullptr,
         .correlation = 1});
  }
}

thread_local bool in_group = false;

ncclResult_t FakeAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t) {
  if (!in_group) LaunchOne();
  return ncclSuccess;
}
ncclResult_t FakeGroupStart() {
  in_group = true;
  return ncclSuccess;
}
ncclResult_t FakeGroupEnd() {
  in_group = false;
  LaunchOne();
  return ncclSuccess;
}

void SetReal(EntryPoint entry_point, void* function) {
  real_functions[kFirstProviderWay][static_cast<size_t>(entry_point)].store(function);
}

// One object to tell communicators by; never looked into.
ncclComm_t Comm() {
  static char object = 0;
  return reinterpret_cast<ncclComm_t>(&object);
}

void Prepare(bool live) {
  MapRings();
  host_clock.Start();
  SetLive(live);
  SetReal(EntryPoint::kAllReduce, reinterpret_cast<void*>(&FakeAllReduce));
  SetReal(EntryPoint::kGroupStart, reinterpret_cast<void*>(&FakeGroupStart));
  SetReal(EntryPoint::kGroupEnd, reinterpret_cast<void*>(&FakeGroupEnd));
  Register(Comm(), {.hash = 1, .rank = 0, .ranks = 8, .device = 0});
}

void DiscardEvents() {
  EventRing* ring = CurrentThread().ring;
  if (ring != nullptr) ring->Consume(ring->PublishedEnd());
}

void NcclCall(benchmark::State& state) {
  Prepare(state.range(0) != 0);
  int since_drain = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Nccl::AllReduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, Comm(), nullptr));
    if (++since_drain == 1000) {
      DiscardEvents();
      since_drain = 0;
    }
  }
  DiscardEvents();
  SetLive(false);
}
BENCHMARK(NcclCall)->ArgName("live")->Arg(1)->Arg(0);

void NcclGroupOfEight(benchmark::State& state) {
  Prepare(true);
  int since_drain = 0;
  for (auto _ : state) {
    Nccl::GroupStart();
    for (int i = 0; i < 8; ++i) {
      benchmark::DoNotOptimize(Nccl::AllReduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, Comm(), nullptr));
    }
    Nccl::GroupEnd();
    if (++since_drain == 500) {
      DiscardEvents();
      since_drain = 0;
    }
  }
  state.SetItemsProcessed(state.iterations() * 8);
  DiscardEvents();
  SetLive(false);
}
BENCHMARK(NcclGroupOfEight);

}  // namespace
}  // namespace gpuprobe::injector::nccl
