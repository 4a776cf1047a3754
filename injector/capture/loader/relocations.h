// Visits the resolved relocations of every loaded object and replaces what a policy wants replaced.
//
// This is the mechanism: the linker's list, read-only relocation memory, atomic stores; the policy is
// patching.h's. Thread: any one at a time; it takes the dynamic linker's list lock, so not from a callback
// that runs under an application's lock. Allocation: none. Failure: a slot that cannot be written is left and
// counted. What is not there, or must not be read, is left out: the program may have unmapped or protected an
// object's headers, tables or slots.
//
// An object that another thread is just loading is in the list before its relocations are done. Its read-only
// part is still writable then, but the loader may protect it at any moment, so such slots are postponed to a
// later scan. Slots elsewhere are written at once; if the loader overwrites them, the next scan finds them
// again.
#pragma once

#include <cstdint>

#include "injector/capture/loader/elf_object.h"

namespace gpuprobe::injector::nccl {

struct Slot {
  void* value;         // what it holds
  const char* symbol;  // what it was resolved from
  uint32_t type;       // R_X86_64_JUMP_SLOT, GLOB_DAT or 64
  bool unresolved;     // lazily bound, and not called yet
};

// Decides about loaded objects and their slots: plain functions, because a virtual one would need the C++
// run-time library. Called under the linker's lock: they must not call any dl* function.
struct RelocationPolicy {
  // First for each object, in load order, before any slot is visited.
  void (*see_object)(const ElfObject& object) noexcept;
  // True: the object's slots are left alone.
  bool (*skip)(const ElfObject& object) noexcept;
  // The slot's new value; null: leave it.
  void* (*replacement)(const ElfObject& object, const Slot& slot) noexcept;
  // False for symbols that `replacement` need not be asked about: libraries have a million relocations.
  bool (*concerns)(const char* symbol) noexcept;
  // True for symbols whose slots are written when all others, of all objects, have been. Null: none.
  bool (*comes_last)(const char* symbol) noexcept = nullptr;
};

struct ScanResult {
  uint32_t patched = 0;
  uint32_t postponed = 0;
  uint32_t failed = 0;
  uint64_t adds = 0;  // dlpi_adds: objects ever loaded
  uint64_t subs = 0;  // dlpi_subs: objects ever unloaded
};

// Releases the linker's lock every kLockedNs, or after the object that is being scanned then, so that no
// dlopen or dlsym waits for a whole scan. Objects that come or go meanwhile are found by the next one: adds
// and subs are those at the start.
//
// With `since`, the adds of an earlier scan, only objects that were loaded after it.
inline constexpr uint64_t kLockedNs = 200'000;
ScanResult ScanRelocations(const RelocationPolicy& policy, uint64_t since = 0) noexcept;

// Writes `function` to this library's own slots of `symbol` that hold `value`.
void BindOwnCalls(const char* symbol, const void* value, void* function) noexcept;

// Calls visit for each loaded object, under the linker's lock.
void ForEachObject(void (*visit)(const ElfObject& object, void* data) noexcept, void* data) noexcept;

// Calls visit for the object that contains `address`, under the linker's lock; not while the process is being
// forked.
void ForObjectAt(const void* address, void (*visit)(const ElfObject& object) noexcept) noexcept;

// The current dlpi_adds, read from the first object only; 0 while the process is being forked.
uint64_t LoadedObjectsEver() noexcept;

}  // namespace gpuprobe::injector::nccl
