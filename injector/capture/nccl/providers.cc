#include "injector/capture/nccl/providers.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace gpuprobe::injector::nccl {

namespace {

// Ways are never given back: the program may still hold a thunk of an unloaded copy.
constinit std::atomic<int> provider_count{0};
// Those providers that are an NCCL. A copy outlives its object. After an unload its facts are stale, but it
// only reads memory that is readable.
constinit std::optional<ElfObject> libraries[kMaxProviders] = {};
// What objects that are linked to a provider call it; empty: none, or too long.
constinit char so_names[kMaxProviders][64] = {};

void NoteSoName(const ElfObject& object, char (&into)[64]) noexcept {
  const char* name = object.SoName();
  const size_t length = name == nullptr ? 0 : std::strlen(name);
  into[0] = '\0';
  if (length < sizeof into) std::memcpy(into, name == nullptr ? "" : name, length + 1);
}

// A library that wraps some functions is a provider like NCCL itself. The criterion is that it starts and
// ends groups.
bool DefinesCalls(const ElfObject& object) noexcept {
  return object.FindSymbol("ncclGroupStart") != nullptr && object.FindSymbol("ncclGroupEnd") != nullptr;
}

bool MakesCommunicators(const ElfObject& object) noexcept {
  return object.FindSymbol("ncclGetUniqueId") != nullptr && object.FindSymbol("ncclCommInitRank") != nullptr;
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
  NoteSoName(object, so_names[count]);
  if (MakesCommunicators(object)) libraries[count].emplace(object);
  provider_count.store(count + 1, std::memory_order_release);
}

bool IsCodeOfNccl(const void* address) noexcept {
  const int count = provider_count.load(std::memory_order_acquire);
  return std::any_of(libraries, libraries + count, [address](const std::optional<ElfObject>& library) {
    return library.has_value() && library->InExecutableSegment(reinterpret_cast<uintptr_t>(address));
  });
}

bool NcclExports(const char* symbol) noexcept {
  const int count = provider_count.load(std::memory_order_acquire);
  return std::any_of(libraries, libraries + count, [symbol](const std::optional<ElfObject>& library) {
    return library.has_value() && IsCodeOfNccl(library->FindSymbol(symbol));
  });
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

int ProviderFor(const ElfObject& object, EntryPoint entry_point) noexcept {
  const int count = provider_count.load(std::memory_order_acquire);
  const bool is_program = object.FileName().empty();
  int first = -1;
  bool several = false;
  for (int place = 0; place < count; ++place) {
    if (RealAddress(kFirstProviderWay + place, entry_point) == nullptr) continue;
    several = first >= 0;
    if (first < 0) first = place;
    // An object listed before a library that the program is linked to was preloaded.
    if ((place == first || is_program) && object.Needs(so_names[place])) return kFirstProviderWay + first;
  }
  return first < 0 || several ? -1 : kFirstProviderWay + first;
}

}  // namespace gpuprobe::injector::nccl
