// Cost of one NVTX push/pop pair on the application's thread: with the probe live, and with it off.
#include <benchmark/benchmark.h>
#include <nvtx3/nvToolsExt.h>

#include "injector/base/lifecycle.h"
#include "injector/capture/nvtx/handlers.h"
#include "injector/core/event_ring.h"
#include "injector/core/host_clock.h"
#include "injector/core/thread_state.h"

// NVTX calls this on its first use, when no library is named in the environment.
[[maybe_unused]] const bool kPlaced = [] {
  InitializeInjectionNvtx2_fnptr = gpuprobe::injector::nvtx::PlaceHandlers;
  return true;
}();

namespace gpuprobe::injector {
namespace {

void DiscardEvents() {
  EventRing* ring = CurrentThread().ring;
  if (ring != nullptr) ring->Consume(ring->PublishedEnd());
}

void NvtxPushPop(benchmark::State& state) {
  MapRings();
  host_clock.Start();
  ResetLifecycleForTest();
  if (state.range(0) != 0) {
    Transition(LifecycleState::kOff, LifecycleState::kStarting);
    Transition(LifecycleState::kStarting, LifecycleState::kLive);
  }
  int since_drain = 0;
  for (auto _ : state) {
    nvtxRangePushA("forward");
    nvtxRangePop();
    if (++since_drain == 1000) {
      DiscardEvents();
      since_drain = 0;
    }
  }
  DiscardEvents();
  ResetLifecycleForTest();
}
BENCHMARK(NvtxPushPop)->ArgName("live")->Arg(1)->Arg(0);

}  // namespace
}  // namespace gpuprobe::injector
