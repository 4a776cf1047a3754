#include "injector/host_state.h"

#include <unistd.h>

#include <cstring>
#include <string_view>

#include "injector/cupti/callbacks.h"
#include "injector/guard.h"
#include "injector/stream/own_descriptor.h"

namespace gpuprobe::injector {

constinit std::atomic<const char*> main_thread_waits_in{nullptr};
constinit std::atomic<uint64_t> main_thread_waits_since_ns{0};
constinit std::atomic<uint64_t> main_thread_waited_until_ns{0};

namespace {

// Not in headers before 13.0, whose runtime calls it.
constexpr auto kCtxSynchronize_v2 = static_cast<CUpti_driver_api_trace_cbid>(800);

constexpr CUpti_driver_api_trace_cbid kWaits[] = {
    CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,         kCtxSynchronize_v2,
    CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize,       CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz,
};

bool IsMainThread(const ThreadState& thread) noexcept {
  static const auto kProcess = static_cast<uint32_t>(getpid());
  return thread.tid == kProcess;
}

void OnWaitBegin(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId /*cbid*/) noexcept {
  if (!IsMainThread(thread)) return;
  main_thread_waits_since_ns.store(NowNs(), std::memory_order_relaxed);
  main_thread_waits_in.store(data.functionName, std::memory_order_release);
}

void OnWaitEnd(ThreadState& thread, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  if (!IsMainThread(thread)) return;
  main_thread_waits_in.store(nullptr, std::memory_order_relaxed);
  main_thread_waited_until_ns.store(NowNs(), std::memory_order_relaxed);
}

// The number behind "\n<name>: ", 0 if there is none.
uint64_t NumberAfter(std::string_view text, std::string_view name) noexcept {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  uint64_t value = 0;
  for (size_t i = at + name.size(); i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  return value;
}

}  // namespace

void AddWaitHooks() noexcept {
  for (const auto cbid : kWaits) {
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnWaitBegin);
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_EXIT, OnWaitEnd);
  }
}

// rchar and wchar count what went through the page cache, too: a checkpoint is progress before it is on disk.
uint64_t IoBytes() noexcept {
  char text[512];
  const std::string_view all(text, ReadOwnFile("/proc/self/io", text, sizeof(text)));
  return NumberAfter(all, "rchar: ") + NumberAfter(all, "wchar: ");
}

}  // namespace gpuprobe::injector
