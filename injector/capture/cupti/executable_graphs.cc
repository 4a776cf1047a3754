#include "injector/capture/cupti/executable_graphs.h"

#include <atomic>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/graph_functions.h"

namespace gpuprobe::injector {

namespace {

struct GraphPlace {
  std::atomic<uintptr_t> address{0};
  std::atomic<uint32_t> number{0};  // 0: free; kUnseenGraph: being written
};

constinit GraphPlace table[kGraphSets][kGraphWays] = {};
constinit std::atomic<uint32_t> last_number{0};

GraphPlace (&SetOf(uintptr_t address) noexcept)[kGraphWays] {
  return table[(address * 0x9e37'79b9'7f4a'7c15u) >> 54];
}
static_assert(kGraphSets == 1u << 10);

GraphPlace* Find(uintptr_t address) noexcept {
  for (GraphPlace& place : SetOf(address)) {
    if (place.address.load(std::memory_order_acquire) == address) return &place;
  }
  return nullptr;
}

// Only the thread that changed the number to kUnseenGraph writes here.
bool Take(GraphPlace& place) noexcept {
  uint32_t number = place.number.load(std::memory_order_relaxed);
  return number != kUnseenGraph && place.number.compare_exchange_strong(number, kUnseenGraph);
}

// Two threads that make graphs at once may want the same place: then one of the two was not seen.
void Remember(uintptr_t address, uint32_t number) noexcept {
  GraphPlace* place = Find(address);
  if (place == nullptr) {
    for (GraphPlace& candidate : SetOf(address)) {
      if (place == nullptr ||
          candidate.number.load(std::memory_order_relaxed) < place->number.load(std::memory_order_relaxed))
        place = &candidate;
    }
  }
  if (!Take(*place)) return;
  place->address.store(address, std::memory_order_relaxed);
  place->number.store(number, std::memory_order_release);
}

// One driver function may be made of another: the outermost gives the number.
void OnInstantiating(ThreadState& thread, const CUpti_CallbackData& /*data*/,
                     CUpti_CallbackId /*cbid*/) noexcept {
  thread.last_launch_correlation = 0;  // nodes made from now on do not belong to that launch
  if (thread.instantiating_graph == 0)
    thread.instantiating_graph = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
}

void OnExecutableMade(ThreadState& thread, const CUpti_CallbackData& data,
                      CUpti_CallbackId /*cbid*/) noexcept {
  const uint32_t number = thread.instantiating_graph;
  thread.instantiating_graph = 0;
  if (number == 0 || number == kUnseenGraph || data.functionParams == nullptr) return;
  if (data.functionReturnValue == nullptr || *static_cast<const int*>(data.functionReturnValue) != 0) return;
  const auto* arguments = static_cast<const InstantiateArguments*>(data.functionParams);
  if (arguments->exec != nullptr && *arguments->exec != nullptr)
    Remember(reinterpret_cast<uintptr_t>(*arguments->exec), number);
}

// At entry: afterwards the address may be another graph's already.
void OnDestroying(ThreadState& /*thread*/, const CUpti_CallbackData& data,
                  CUpti_CallbackId /*cbid*/) noexcept {
  const auto* arguments = static_cast<const cuGraphExecDestroy_params*>(data.functionParams);
  if (arguments == nullptr) return;
  GraphPlace* place = Find(reinterpret_cast<uintptr_t>(arguments->hGraphExec));
  if (place == nullptr || !Take(*place)) return;
  place->address.store(0, std::memory_order_relaxed);
  place->number.store(0, std::memory_order_release);
}

}  // namespace

uint32_t NumberOfGraph(const void* executable) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(executable);
  const GraphPlace* place = address == 0 ? nullptr : Find(address);
  const uint32_t number = place == nullptr ? 0 : place->number.load(std::memory_order_acquire);
  const bool same = place != nullptr && place->address.load(std::memory_order_relaxed) == address;
  return number == 0 || !same ? kUnseenGraph : number;
}

void AddExecutableGraphHooks() noexcept {
  for (const auto cbid : kGraphInstantiations) {
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_ENTER, OnInstantiating);
    AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, cbid, CUPTI_API_EXIT, OnExecutableMade);
  }
  AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, CUPTI_API_ENTER,
             OnDestroying);
}

}  // namespace gpuprobe::injector
