#include "injector/capture/loader/exports.h"

#include <sys/mman.h>

#include "injector/capture/loader/page_access.h"

namespace gpuprobe::injector::nccl {

namespace {

uintptr_t Load(uintptr_t address) noexcept {
  return __atomic_load_n(PointerTo<const uintptr_t>(address), __ATOMIC_ACQUIRE);
}
void Store(uintptr_t address, uintptr_t value) noexcept {
  __atomic_store_n(PointerTo<uintptr_t>(address), value, __ATOMIC_RELEASE);
}

}  // namespace

void Exports::ResolveOwnCalls(void* (*real)(const char* name) noexcept) noexcept {
  object_.ForEachSymbolRelocation([&](void** slot, const char* symbol, uint32_t type) noexcept {
    const auto function = reinterpret_cast<uintptr_t>(type == R_X86_64_JUMP_SLOT ? real(symbol) : nullptr);
    const auto address = reinterpret_cast<uintptr_t>(slot);
    if (function == 0 || address % sizeof(address) != 0 || !object_.CanRead(address, sizeof(address))) return;
    const uintptr_t value = Load(address);
    if (value != function && object_.Contains(value) && CanWrite(address)) Store(address, function);
  });
}

bool Exports::Replace(const char* name, const void* real, const void* ours) noexcept {
  const uintptr_t address = object_.FindSymbolValue(name);
  const uintptr_t value = reinterpret_cast<uintptr_t>(ours) - object_.Base();
  if (address == 0 || address % sizeof(address) != 0 || !object_.CanRead(address, sizeof(address)))
    return false;
  const uintptr_t now = Load(address);
  if (now == value) return true;
  if (now != reinterpret_cast<uintptr_t>(real) - object_.Base()) return false;
  if (CanWrite(address)) {
    Store(address, value);
    return true;
  }
  // Older linkers put the tables into one segment with the code. The page must then have none: for a moment
  // it cannot be executed.
  const uintptr_t start = address & ~(kPageBytes - 1);
  const bool executable = object_.InExecutableSegment(address);
  if (executable && (object_.Init() == 0 || object_.Init() < start + kPageBytes)) return false;
  if (mprotect(PointerTo<void>(start), kPageBytes, PROT_READ | PROT_WRITE) != 0) return false;
  Store(address, value);
  // A refusal leaves the page writable: the program runs on, only less protected.
  static_cast<void>(
      mprotect(PointerTo<void>(start), kPageBytes, executable ? PROT_READ | PROT_EXEC : PROT_READ));
  return true;
}

}  // namespace gpuprobe::injector::nccl
