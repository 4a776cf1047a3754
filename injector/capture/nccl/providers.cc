#include "injector/capture/nccl/providers.h"

namespace gpuprobe::injector::nccl {

namespace {

// Ways are never given back: a thunk of an unloaded copy may still be held by somebody.
constinit std::atomic<int> provider_count{0};

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
  const int count = provider_count.load(std::memory_order_relaxed);
  if (count == kMaxProviders || ProviderOf(witness, functions[static_cast<size_t>(witness)]) >= 0) return;
  for (size_t i = 0; i < kEntryPoints; ++i) {
    real_functions[kFirstProviderWay + count][i].store(functions[i], std::memory_order_relaxed);
  }
  provider_count.store(count + 1, std::memory_order_release);
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

int FirstProviderOf(EntryPoint entry_point) noexcept {
  const int count = provider_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (RealAddress(kFirstProviderWay + i, entry_point) != nullptr) return kFirstProviderWay + i;
  }
  return -1;
}

void ClearProvidersForTest() noexcept {
  provider_count.store(0);
  for (int way = kFirstProviderWay; way < kWays; ++way) {
    for (auto& function : real_functions[way]) function.store(nullptr);
  }
}

}  // namespace gpuprobe::injector::nccl
