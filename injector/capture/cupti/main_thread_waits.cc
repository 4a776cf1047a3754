#include "injector/capture/cupti/main_thread_waits.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "injector/capture/cupti/callbacks.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/host_state.h"

namespace gpuprobe::injector {

namespace {

// Not in headers before 13.0, whose runtime calls it.
constexpr auto kCtxSynchronizeV2 = static_cast<CUpti_driver_api_trace_cbid>(800);

constexpr CUpti_driver_api_trace_cbid kWaits[] = {
    CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,         kCtxSynchronizeV2,
    CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize,       CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz,
};

constinit std::atomic<uint32_t> main_thread_id{0};

bool IsMainThread(const ThreadState& thread) noexcept {
  return thread.tid == main_thread_id.load(std::memory_order_relaxed);
}

void OnWaitBegin(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId /*cbid*/) noexcept {
  thread.driver_call.Begin(data.functionName, Stamp());
  if (!IsMainThread(thread)) return;
  main_thread_waits_since_ns.store(NowNs(), std::memory_order_relaxed);
  main_thread_waits_in.store(data.functionName, std::memory_order_release);
}

void OnWaitEnd(ThreadState& thread, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  thread.driver_call.End();
  if (!IsMainThread(thread)) return;
  main_thread_waits_in.store(nullptr, std::memory_order_relaxed);
  main_thread_waited_until_ns.store(NowNs(), std::memory_order_relaxed);
}

}  // namespace

void AddWaitHooks() noexcept {
  main_thread_id.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
  for (const auto cbid : kWaits) {
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnWaitBegin);
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_EXIT, OnWaitEnd);
  }
}

}  // namespace gpuprobe::injector
