// What an event costs the application's thread: the guard, the clock and the ring.
#include <benchmark/benchmark.h>

#include "injector/base/lifecycle.h"
#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/cupti/main_thread_waits.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/host_state.h"

namespace gpuprobe::injector {
namespace {

void GoLive() {
  MapRings();
  host_clock.Start();
  Transition(LifecycleState::kOff, LifecycleState::kStarting);
  Transition(LifecycleState::kStarting, LifecycleState::kLive);
}

// The consumer's side is not measured: the ring is emptied in one store, about when it is in the probe.
void EmptyRing(EventRing* ring, uint64_t events) {
  if (ring != nullptr && events % 8192 == 0) ring->Consume(ring->PublishedEnd());
}

void GuardOnly(benchmark::State& state) {
  GoLive();
  for (auto _ : state) {
    const Guard guard;
    benchmark::DoNotOptimize(static_cast<bool>(guard));
  }
}
BENCHMARK(GuardOnly);

void PushLaunchEvent(benchmark::State& state) {
  GoLive();
  ThreadState& thread = CurrentThread();
  uint64_t events = 0;
  for (auto _ : state) {
    Emit(thread, LaunchEvent{1, 2, 3, 4, 0, 0, 0});
    EmptyRing(thread.ring, ++events);
  }
}
BENCHMARK(PushLaunchEvent);

// Everything the probe does for one kernel launch: the callbacks at the function's entry and exit.
void LaunchCallback(benchmark::State& state) {
  GoLive();
  AddLaunchHooks();
  ThreadState& thread = CurrentThread();
  const CUresult succeeded = CUDA_SUCCESS;
  CUpti_CallbackData data{};
  data.functionReturnValue = const_cast<CUresult*>(&succeeded);
  uint64_t events = 0;
  for (auto _ : state) {
    ++data.correlationId;
    for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
      data.callbackSite = site;
      const Guard guard;
      if (guard)
        DispatchApi(guard.thread(), CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, data);
    }
    EmptyRing(thread.ring, ++events);
  }
}
BENCHMARK(LaunchCallback);

// Around a call in which the main thread waits for the device: both callbacks together.
void WaitCallbacks(benchmark::State& state) {
  GoLive();
  AddWaitHooks();
  CUpti_CallbackData data{};
  data.functionName = "cuStreamSynchronize";
  for (auto _ : state) {
    for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
      data.callbackSite = site;
      const Guard guard;
      if (guard) {
        DispatchApi(guard.thread(), CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize,
                    data);
      }
    }
  }
}
BENCHMARK(WaitCallbacks);

}  // namespace
}  // namespace gpuprobe::injector
