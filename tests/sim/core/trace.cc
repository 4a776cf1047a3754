#include "tests/sim/core/trace.h"

#include <cupti.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tests/sim/core/knobs.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/truth.h"

namespace gpusim {
namespace {

std::atomic<uint32_t> next_correlation{1};

struct ThreadState {
  int depth = 0;
  int tool_depth = 0;
  uint32_t correlation = 0;
  bool null_is_per_thread = false;
};
thread_local ThreadState thread_state;

// GPUSIM_CALLS: the truth log names every function of both APIs that was called, once.
constexpr size_t kMostFunctions = 2048;
std::atomic<bool> called[2][kMostFunctions];

void NoteCall(int domain, uint32_t cbid, const char* name) {
  static const bool kWanted = GetKnobs().note_calls && TruthWanted();
  if (!kWanted || cbid >= kMostFunctions) return;
  std::atomic<bool>& known = called[domain == CUPTI_CB_DOMAIN_DRIVER_API ? 0 : 1][cbid];
  if (known.load(std::memory_order_relaxed) || known.exchange(true, std::memory_order_relaxed)) return;
  std::string line;
  AppendCallTruth(name, &line);
  WriteTruth(line);
}

// By driver function: 0: not looked at, 1: no, 2: yes.
std::atomic<uint8_t> may_be_slow[kMostFunctions];

bool KnownMayBeSlow(uint32_t cbid, const char* name) {
  if (cbid >= kMostFunctions) return false;
  uint8_t known = may_be_slow[cbid].load(std::memory_order_relaxed);
  if (known == 0) {
    known = MayBeSlow(name) ? 2 : 1;
    may_be_slow[cbid].store(known, std::memory_order_relaxed);
  }
  return known == 2;
}

void FillContext(ApiCall* call) {
  CUctx_st* context = CurrentContextOrNull();
  call->context = context;
  call->context_uid = context != nullptr ? context->uid : 0;
}

}  // namespace

ApiScope::ApiScope(int domain, uint32_t cbid, const char* name, const void* params, void* result,
                   const char* symbol) {
  ThreadState& state = thread_state;
  outermost_ = state.depth++ == 0;
  if (outermost_ && state.tool_depth == 0) NoteCall(domain, cbid, name);
  if (outermost_) state.correlation = next_correlation.fetch_add(1, std::memory_order_relaxed);
  call_.domain = domain;
  call_.cbid = cbid;
  call_.function_name = name;
  call_.params = params;
  call_.result = result;
  call_.symbol_name = symbol;
  const bool logged = TruthWanted() && domain == CUPTI_CB_DOMAIN_DRIVER_API && state.tool_depth == 0 &&
                      KnownMayBeSlow(cbid, name);
  if (logged) began_ns_ = NowNs();
  Enter();
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && !GetKnobs().calls.empty()) {
    if (const uint64_t longer_ns = DriverCallNs(name); longer_ns != 0)
      std::this_thread::sleep_for(std::chrono::nanoseconds(longer_ns));
  }
}

void ApiScope::Enter() {
  const ThreadState& state = thread_state;
  const CuptiHooks* hooks = cupti_hooks.load(std::memory_order_acquire);
  if (hooks != nullptr && state.tool_depth == 0 && hooks->wants_api(call_.domain, call_.cbid)) {
    hooks_ = hooks;
    call_.correlation = state.correlation;
    FillContext(&call_);
    call_.start_ns = NowNs();
    hooks_->api_enter(&call_);
  }
  if (began_ns_ != 0) work_began_ns_ = NowNs();
}

ApiScope::~ApiScope() {
  const uint64_t work_ended_ns = began_ns_ != 0 ? NowNs() : 0;
  if (hooks_ != nullptr) {
    FillContext(&call_);
    call_.end_ns = NowNs();
    hooks_->api_exit(&call_);
  }
  if (began_ns_ != 0) Log(work_ended_ns);
  --thread_state.depth;
}

void ApiScope::Log(uint64_t work_ended_ns) const {
  const DriverCallTruth call{.function = call_.function_name,
                             .began_ns = began_ns_,
                             .start_ns = work_began_ns_,
                             .end_ns = work_ended_ns,
                             .left_ns = NowNs(),
                             .result = *static_cast<const int*>(call_.result)};
  if (call.left_ns - call.began_ns < kLoggedCallNs) return;
  std::string line;
  AppendDriverCallTruth(call, &line);
  WriteTruth(line);
}

uint32_t CurrentCorrelation() {
  if (thread_state.depth > 0) return thread_state.correlation;
  return next_correlation.fetch_add(1, std::memory_order_relaxed);
}

void ThreadBeginToolCallback() { ++thread_state.tool_depth; }
void ThreadEndToolCallback() { --thread_state.tool_depth; }

PerThreadDefault::PerThreadDefault() : before_(thread_state.null_is_per_thread) {
  thread_state.null_is_per_thread = true;
}
PerThreadDefault::~PerThreadDefault() { thread_state.null_is_per_thread = before_; }
bool NullStreamIsPerThread() { return thread_state.null_is_per_thread; }

}  // namespace gpusim
