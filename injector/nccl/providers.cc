#include "injector/nccl/providers.h"

namespace gpuprobe::injector::nccl {

namespace {

// Ways are never given back: a thunk of an unloaded copy may still be held by somebody.
constinit std::atomic<int> provider_count{0};
constinit std::atomic<int> first_provider{-1};

// A library of wrappers for some functions is a provider like NCCL itself; what names the thing is that it
// starts and ends groups.
bool DefinesCalls(const ElfObject& object) noexcept {
  return object.FindSymbol("ncclGroupStart") != nullptr && object.FindSymbol("ncclGroupEnd") != nullptr;
}

}  // namespace

void AddProvider(const ElfObject& object) noexcept {
  void* functions[kEntryPoints];
  if (object.FindSymbol("ncclAllReduce") == nullptr && !DefinesCalls(object)) return;
  EntryPoint witness = EntryPoint::kCount;
  for (size_t i = 0; i < kEntryPoints; ++i) {
    functions[i] = object.FindSymbol(kSymbolNames[i]);
    if (functions[i] == nullptr) functions[i] = object.FindSymbol(kProfilingSymbolNames[i]);
    if (functions[i] != nullptr && witness == EntryPoint::kCount) witness = static_cast<EntryPoint>(i);
  }
  int way = ProviderOf(witness, functions[static_cast<size_t>(witness)]);
  if (way < 0) {
    const int count = provider_count.load(std::memory_order_relaxed);
    if (count == kMaxProviders) return;
    way = kFirstProviderWay + count;
    for (size_t i = 0; i < kEntryPoints; ++i) {
      real_functions[way][i].store(functions[i], std::memory_order_relaxed);
    }
    provider_count.store(count + 1, std::memory_order_release);
  }
  int none = -1;
  first_provider.compare_exchange_strong(none, way, std::memory_order_relaxed);
}

int ProviderOf(EntryPoint entry_point, const void* address) noexcept {
  if (address == nullptr || entry_point == EntryPoint::kCount) return -1;
  const int count = provider_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    const int way = kFirstProviderWay + i;
    if (real_functions[way][static_cast<size_t>(entry_point)].load(std::memory_order_relaxed) == address)
      return way;
  }
  return -1;
}

int FirstProvider() noexcept { return first_provider.load(std::memory_order_relaxed); }

void ClearProvidersForTest() noexcept {
  provider_count.store(0);
  first_provider.store(-1);
  for (int way = kFirstProviderWay; way < kWays; ++way) {
    for (auto& function : real_functions[way]) function.store(nullptr);
  }
}

}  // namespace gpuprobe::injector::nccl
