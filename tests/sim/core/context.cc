// Devices and contexts: cuInit with the injection, primary contexts, the calling thread's stack.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/sim/core/knobs.h"
#include "tests/sim/core/memory.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/core/schedule.h"
#include "tests/sim/core/trace.h"

namespace gpusim {
namespace {

std::atomic<bool> driver_is_up{false};
std::atomic<uint64_t> next_thread_number{1};

struct Contexts {
  std::set<CUctx_st*> live;
  std::map<int, CUctx_st*> primary;
  std::map<int, unsigned> primary_flags;
  uint32_t next_uid = 1;
};

// Guarded by the schedule's mutex; never destroyed.
Contexts& AllContexts() {
  static auto* contexts = new Contexts;
  return *contexts;
}

std::vector<CUctx_st*>& CurrentStack() { return PerThread<std::vector<CUctx_st*>>(); }

// As the driver does: a library that cannot be loaded, or refuses, is no error of the application's.
void LoadInjection() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  void* library = dlopen(path, RTLD_LAZY);
  if (library == nullptr) return;
  using InitializeInjection = int (*)();
  const auto initialize = reinterpret_cast<InitializeInjection>(dlsym(library, "InitializeInjection"));
  if (initialize != nullptr) initialize();
}

CUctx_st* NewContextLocked(int device, unsigned flags, bool primary) {
  auto* context = new CUctx_st;
  context->device = device;
  context->uid = AllContexts().next_uid++;
  context->primary = primary;
  context->flags = flags;
  context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                     {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                     {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20}};
  context->legacy = std::make_unique<CUstream_st>();
  context->legacy->context = context;
  context->legacy->id = 7;
  context->legacy->legacy = true;
  AllContexts().live.insert(context);
  return context;
}

}  // namespace

CUresult InitDriver() {
  if (LostToFork()) return CUDA_ERROR_NOT_INITIALIZED;
  if (GetKnobs().devices < 1) return CUDA_ERROR_NO_DEVICE;
  // Recursive, because what is injected may call cuInit, which then finds the driver up.
  static auto* mutex = new std::recursive_mutex;
  const std::lock_guard<std::recursive_mutex> lock(*mutex);
  if (driver_is_up.exchange(true)) return CUDA_SUCCESS;
  LoseToForks();
  Schedule::Get();  // made here, before an injected tool's threads flush
  LoadInjection();
  NotifyResource(ResourceEvent::kDriverUp, nullptr, nullptr);
  return CUDA_SUCCESS;
}

bool DriverIsUp() { return driver_is_up.load() && !LostToFork(); }
size_t DeviceCount() { return static_cast<size_t>(GetKnobs().devices); }

DeviceFacts FactsOfDevice(uint32_t ordinal) {
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.name = GetKnobs().device_name.c_str();
  const char prefix[] = "gpusim-device-";
  std::memcpy(facts.uuid, prefix, sizeof prefix - 1);
  facts.uuid[15] = static_cast<uint8_t>(ordinal);
  facts.memory_bytes = GetKnobs().memory_bytes;
  facts.multiprocessors = 132;
  facts.compute_major = 9;
  facts.compute_minor = 0;
  facts.memory_bandwidth_bytes_per_s = kDeviceBandwidthBytesPerS;
  return facts;
}

uint64_t ThreadNumber() {
  thread_local const uint64_t kNumber = next_thread_number.fetch_add(1);
  return kNumber;
}

void NotifyResource(ResourceEvent event, CUctx_st* context, void* stream) {
  const CuptiHooks* hooks = cupti_hooks.load(std::memory_order_acquire);
  if (hooks == nullptr || hooks->resource == nullptr) return;
  Resource resource;
  resource.event = event;
  resource.context = context;
  resource.stream = stream;
  hooks->resource(resource);
}

CUctx_st* CurrentContextOrNull() { return CurrentStack().empty() ? nullptr : CurrentStack().back(); }
void* CurrentContext() { return CurrentContextOrNull(); }

int CurrentDevice() {
  const CUctx_st* context = CurrentContextOrNull();
  return context != nullptr ? context->device : 0;
}

bool IsLive(CUctx_st* context) {
  const Locked locked;
  return AllContexts().live.count(context) != 0;
}

CUresult RequireContext(CUctx_st** context) {
  *context = CurrentContextOrNull();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return IsLive(*context) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUctx_st* NewContext(int device, unsigned flags) {
  CUctx_st* context = nullptr;
  {
    const Locked locked;
    context = NewContextLocked(device, flags, false);
  }
  NotifyResource(ResourceEvent::kContextCreated, context, nullptr);
  return context;
}

CUresult RetainPrimary(int device, CUctx_st** context) {
  bool created = false;
  {
    const Locked locked;
    CUctx_st*& primary = AllContexts().primary[device];
    if (primary == nullptr) {
      primary = NewContextLocked(device, AllContexts().primary_flags[device], true);
      created = true;
    }
    ++primary->retained;
    *context = primary;
  }
  if (created) NotifyResource(ResourceEvent::kContextCreated, *context, nullptr);
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(int device) {
  CUctx_st* ending = nullptr;
  {
    const Locked locked;
    CUctx_st* primary = AllContexts().primary[device];
    if (primary == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary->retained == 0) ending = primary;
  }
  return ending != nullptr ? DestroyContext(ending) : CUDA_SUCCESS;
}

CUresult ResetPrimary(int device) {
  CUctx_st* primary = nullptr;
  {
    const Locked locked;
    primary = AllContexts().primary[device];
  }
  return primary != nullptr ? DestroyContext(primary) : CUDA_SUCCESS;
}

void PrimaryState(int device, unsigned* flags, int* active) {
  const Locked locked;
  *flags = AllContexts().primary_flags[device];
  *active = AllContexts().primary[device] != nullptr ? 1 : 0;
}

CUresult SetPrimaryFlags(int device, unsigned flags) {
  const Locked locked;
  AllContexts().primary_flags[device] = flags;
  if (CUctx_st* primary = AllContexts().primary[device]) primary->flags = flags;
  return CUDA_SUCCESS;
}

CUresult DestroyContext(CUctx_st* context) {
  if (!IsLive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  NotifyResource(ResourceEvent::kContextDestroyStarting, context, nullptr);
  WaitForContext(context);
  FreeMemoryOfContext(context);
  const Locked locked;
  AllContexts().live.erase(context);
  for (auto& [device, primary] : AllContexts().primary) {
    if (primary == context) primary = nullptr;
  }
  context->streams.clear();  // the structures stay: handles may still be in somebody's hands
  return CUDA_SUCCESS;
}

void PushContext(CUctx_st* context) { CurrentStack().push_back(context); }

bool PopContext(CUctx_st** context) {
  if (CurrentStack().empty()) return false;
  if (context != nullptr) *context = CurrentStack().back();
  CurrentStack().pop_back();
  return true;
}

void SetContext(CUctx_st* context) {
  if (!CurrentStack().empty()) CurrentStack().pop_back();
  if (context != nullptr) CurrentStack().push_back(context);
}

uint32_t ContextUid(void* context) {
  auto* known = static_cast<CUctx_st*>(context);
  return IsLive(known) ? known->uid : 0;
}

bool DeviceOfContext(void* context, uint32_t* ordinal) {
  auto* known = static_cast<CUctx_st*>(context);
  if (!IsLive(known)) return false;
  *ordinal = static_cast<uint32_t>(known->device);
  return true;
}

}  // namespace gpusim
