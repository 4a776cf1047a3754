// Dispatches CUPTI's API callbacks to our hooks: one table by domain, function id and site.
//
// Capture parts (launches, NCCL, memory) add their hooks without knowing the session, and the session
// subscribes to exactly the functions that have hooks. Thread: registration on the starting thread, before
// the probe is live; dispatch on the application's thread, inside a guard. Allocation: none. Failure: a full
// place in the table refuses the hook.
#pragma once

#include <cupti.h>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

// Called inside a guard, with the calling thread's state. `data` holds at least until it returns:
// correlationId, symbolName (launches), functionParams (generated_cuda_meta.h,
// generated_cuda_runtime_api_meta.h) and, at exit, functionReturnValue. Bound: 100 ns; no lock, allocation,
// CUPTI or CUDA call.
using ApiHook = void (*)(ThreadState& thread, const CUpti_CallbackData& data, CUpti_CallbackId cbid) noexcept;

inline constexpr uint32_t kMaxCallbackId = 1024;  // CUDA 13.0 has 800 driver functions
inline constexpr int kHooksPerSite = 3;

// Adds a hook for one function and site. `domain` is the driver's or the runtime's API. False when the id is
// out of range or the place is taken kHooksPerSite times. Hooks of one place run in the order in which they
// were added.
enum class HookMakes : uint8_t { kNothing, kARecord };
bool AddApiHook(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, CUpti_ApiCallbackSite site, ApiHook hook,
                HookMakes makes = HookMakes::kNothing) noexcept;
// How many were refused.
uint32_t RefusedApiHooks() noexcept;

// True when some hook wants this function.
bool WantsApi(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept;

// Runs the hooks of one callback. The caller holds the guard.
void DispatchApi(ThreadState& thread, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                 const CUpti_CallbackData& data) noexcept;

// The guard refused a callback: counts the record that the hooks would have made of it, if any.
void CountRefusedApi(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                     const CUpti_CallbackData& data) noexcept;

// A kernel node of a CUDA graph was made (original_id 0), or was copied from another node when its graph was
// cloned or instantiated. On the application's thread, inside a guard; the rules of ApiHook hold.
struct GraphNodeHooks {
  // Called first, because most of a graph's thousands of nodes have no hook interested in them.
  // `copies`: the node is one that copies, else a kernel's.
  bool (*wants)(const ThreadState& thread, bool cloned, bool copies) noexcept = nullptr;
  // `owner`: as GraphNodeEvent::owner.
  void (*on_node)(ThreadState& thread, uint64_t id, uint64_t original_id, uint64_t owner,
                  bool copies) noexcept = nullptr;
  // On any thread, inside no guard: the plan that a node carries; false, and 0, if none is known.
  bool (*carried)(uint64_t node, uint64_t* plan, uint32_t* copy) noexcept = nullptr;
};
// Set before the session starts. Null functions: no hook.
extern GraphNodeHooks graph_node_hooks;

// A copy or memset was launched inside an NCCL call, or turns out to be captured as a node of a CUDA graph.
// The rules of GraphNodeHooks hold.
struct CopyHooks {
  void (*launched)(ThreadState& thread, uint32_t correlation) noexcept = nullptr;
  void (*captured)(ThreadState& thread) noexcept = nullptr;
};
extern CopyHooks copy_hooks;

// Called when a stream was made or a module (a library's kernels) was loaded, which is what a newly opened
// library does first. On the application's thread, inside a guard. Set before the session starts; null: no
// hook.
using NewLibraryHook = void (*)() noexcept;
extern NewLibraryHook new_library_hook;

}  // namespace gpuprobe::injector
