// What an allocation and its release cost the application's thread: CUPTI's callbacks for the runtime's call
// and the driver's below it.
#include <benchmark/benchmark.h>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/context_devices.h"
#include "injector/capture/memory/part.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "tests/injector/support/lifecycle.h"

namespace gpuprobe::injector {
namespace {

void* const kContext = reinterpret_cast<void*>(0xc0);

// Both of a function's callbacks: whoever wants one gets the other, too.
void Call(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* params, uint32_t correlation) {
  static int success = 0;
  CUpti_CallbackData data{};
  data.functionParams = params;
  data.functionReturnValue = &success;
  data.context = static_cast<CUcontext>(kContext);
  data.correlationId = correlation;
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    const Guard guard;
    if (guard) DispatchApi(guard.thread(), domain, cbid, data);
  }
}

// All callbacks of cudaMalloc and of cudaFree: eight callbacks, two events.
void AllocationEvents(benchmark::State& state) {
  MapRings();
  host_clock.Start();
  SetLive(true);
  static const bool once = (kMemoryPart.start(), true);
  benchmark::DoNotOptimize(once);
  NoteContextDevice(kContext, 0);
  CUdeviceptr address = 0x1000;
  void* pointer = reinterpret_cast<void*>(address);
  const cuMemAlloc_v2_params driver_alloc{&address, 4096};
  const cudaMalloc_v3020_params runtime_alloc{&pointer, 4096};
  const cuMemFree_v2_params driver_free{address};
  const cudaFree_v3020_params runtime_free{pointer};
  uint32_t correlation = 0;
  int since_drain = 0;
  for (auto _ : state) {
    ++correlation;
    Call(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &driver_alloc, correlation);
    Call(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, &runtime_alloc, correlation);
    ++correlation;
    Call(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, &driver_free, correlation);
    Call(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, &runtime_free, correlation);
    if (++since_drain == 1000) {
      EventRing* ring = CurrentThread().ring;
      if (ring != nullptr) ring->Consume(ring->PublishedEnd());
      since_drain = 0;
    }
  }
  state.counters["time/event"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * 2, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  SetLive(false);
}
BENCHMARK(AllocationEvents);

}  // namespace
}  // namespace gpuprobe::injector
