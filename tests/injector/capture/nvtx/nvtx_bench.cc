// Cost of one NVTX push/pop pair on the application's thread: with the probe live, and with it off.
#include <benchmark/benchmark.h>
#include <nvtx3/nvToolsExt.h>

#include <string>

#include "injector/capture/nvtx/handlers.h"
#include "injector/core/event_ring.h"
#include "injector/core/host_clock.h"
#include "injector/core/thread_state.h"
#include "tests/injector/support/lifecycle.h"

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
  SetLive(state.range(0) != 0);
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
  SetLive(false);
}
BENCHMARK(NvtxPushPop)->ArgName("live")->Arg(1)->Arg(0);

// A text on the heap may not be there any more: the kernel copies it.
void NvtxPushPopFromTheHeap(benchmark::State& state) {
  MapRings();
  host_clock.Start();
  SetLive(true);
  const std::string name = "aten::addmm, seq = 123456";
  for (auto _ : state) {
    nvtxRangePushA(name.c_str());
    nvtxRangePop();
    DiscardEvents();
  }
  SetLive(false);
}
BENCHMARK(NvtxPushPopFromTheHeap);

// As NVTX's own C++ classes do it.
void NvtxPushPopWithAttributesOnTheStack(benchmark::State& state) {
  MapRings();
  host_clock.Start();
  SetLive(true);
  for (auto _ : state) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = "forward";
    nvtxRangePushEx(&attributes);
    nvtxRangePop();
    DiscardEvents();
  }
  SetLive(false);
}
BENCHMARK(NvtxPushPopWithAttributesOnTheStack);

}  // namespace
}  // namespace gpuprobe::injector
