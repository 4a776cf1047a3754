#include "injector/capture/cupti/callbacks.h"

#include <atomic>

#include "injector/core/guard.h"

namespace gpuprobe::injector {

namespace {

struct HookPlace {
  ApiHook hooks[2][kHooksPerSite];  // [CUPTI_API_ENTER, CUPTI_API_EXIT]
  HookMakes makes[2];
};

constinit HookPlace driver_places[kMaxCallbackId] = {};
constinit HookPlace runtime_places[kMaxCallbackId] = {};
constinit std::atomic<uint32_t> refused_hooks{0};

HookPlace* PlaceOf(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  if (cbid >= kMaxCallbackId) return nullptr;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) return &driver_places[cbid];
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) return &runtime_places[cbid];
  return nullptr;
}

}  // namespace

bool AddApiHook(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, CUpti_ApiCallbackSite site, ApiHook hook,
                HookMakes makes) noexcept {
  HookPlace* place = PlaceOf(domain, cbid);
  if (place != nullptr && (site == CUPTI_API_ENTER || site == CUPTI_API_EXIT)) {
    if (makes != HookMakes::kNothing) place->makes[site] = makes;
    for (ApiHook& slot : place->hooks[site]) {
      if (slot == hook) return true;
      if (slot != nullptr) continue;
      slot = hook;
      return true;
    }
  }
  refused_hooks.fetch_add(1, std::memory_order_relaxed);
  return false;
}

uint32_t RefusedApiHooks() noexcept { return refused_hooks.load(std::memory_order_relaxed); }

bool WantsApi(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  const HookPlace* place = PlaceOf(domain, cbid);
  return place != nullptr && (place->hooks[0][0] != nullptr || place->hooks[1][0] != nullptr);
}

void DispatchApi(ThreadState& thread, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                 const CUpti_CallbackData& data) noexcept {
  const HookPlace* place = PlaceOf(domain, cbid);
  if (place == nullptr) return;
  const int site = data.callbackSite == CUPTI_API_ENTER ? CUPTI_API_ENTER : CUPTI_API_EXIT;
  for (const ApiHook hook : place->hooks[site]) {
    if (hook == nullptr) return;
    hook(thread, data, cbid);
  }
}

void CountRefusedApi(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                     const CUpti_CallbackData& data) noexcept {
  const HookPlace* place = PlaceOf(domain, cbid);
  const int site = data.callbackSite == CUPTI_API_ENTER ? CUPTI_API_ENTER : CUPTI_API_EXIT;
  if (place != nullptr && place->makes[site] == HookMakes::kARecord) CountRefused();
}

constinit GraphNodeHooks graph_node_hooks;
constinit CopyHooks copy_hooks;
constinit NewLibraryHook new_library_hook = nullptr;

}  // namespace gpuprobe::injector
