// Physical memory of the virtual memory API: how long each handle's memory lives.
//
// Memory made by cuMemCreate is there until the handle was released as often as it was obtained (create,
// retain) and every mapping of it is gone. Separate from the ledger because it is plain counting. Handles and
// addresses are given out again, possibly before the thread that gave them back says so: what comes late is
// known by when its call began, and belongs to what was there before. What is not known was imported from
// another process, or made before the probe was there: neither is memory of this one that was counted.
// Thread: whoever drains. Allocation: mappings, on growth. Failure: what finds no place is not followed, and
// LOSS_DEFINITIONS_FULL is counted.
#pragma once

#include <cstdint>

#include "injector/stream/flat_map.h"
#include "injector/stream/losses.h"

namespace gpuprobe::injector {

class PhysicalMemory {
 public:
  static constexpr size_t kMaxHandles = size_t{1} << 20;
  static constexpr size_t kMaxMappings = size_t{1} << 20;

  // False: there is no place for it.
  bool Created(uint64_t handle, uint64_t time_ns) noexcept;
  void Retained(uint64_t handle) noexcept;
  // True when the memory is gone with it. `began_ns`: when the call was entered, 0 if that was not seen.
  bool Released(uint64_t handle, uint64_t began_ns) noexcept;
  // Calls ended(handle) when a mapping ends with which the memory is gone.
  template <typename OnEnded>
  void Mapped(uint64_t address, uint64_t bytes, uint64_t handle, uint64_t time_ns, OnEnded ended) noexcept {
    Handle* mapped = Live(handle);
    if (mapped == nullptr) return;
    const uint64_t handle_since_ns = mapped->since_ns;
    bool replaces = false;
    if (const Mapping* before = mappings_.Find(address); before != nullptr) {
      replaces = true;
      const Mapping copy = *before;
      mappings_.Erase(address);
      if (Unreferenced(copy)) ended(copy.handle);
    }
    const Mapping mapping{bytes, handle, handle_since_ns, time_ns, replaces};
    if (mappings_.Insert(address, mapping) == nullptr)
      return CountLoss(wire::LossReason::kLossDefinitionsFull);
    if (Handle* live = Live(handle); live != nullptr) ++live->mappings;
  }
  template <typename OnEnded>
  void Unmapped(uint64_t address, uint64_t bytes, uint64_t began_ns, OnEnded ended) noexcept {
    const uint64_t end = address + bytes;
    while (address < end) {
      Mapping* mapping = mappings_.Find(address);
      if (mapping == nullptr || mapping->bytes == 0) return;
      const Mapping copy = *mapping;
      address += copy.bytes;
      if (copy.replaces && began_ns != 0 && began_ns < copy.since_ns) {
        mapping->replaces = false;  // the late word about what was mapped there before
        continue;
      }
      mappings_.Erase(address - copy.bytes);
      if (Unreferenced(copy)) ended(copy.handle);
    }
  }

 private:
  struct Handle {
    uint64_t since_ns;
    uint32_t references;  // created and retained, less released
    uint32_t mappings;
    uint32_t owed;  // releases that have not been told yet of memory that had this handle before
  };
  struct Mapping {
    uint64_t bytes;
    uint64_t handle;
    uint64_t handle_since_ns;  // of which of the memories that had this handle
    uint64_t since_ns;
    bool replaces;  // one whose end has not been told yet
  };

  Handle* Live(uint64_t handle) noexcept;
  // True when the memory is gone.
  bool Unreferenced(const Mapping& mapping) noexcept;
  bool EndIfUnused(uint64_t handle, const Handle& entry) noexcept;

  FlatMap<Handle> handles_{kMaxHandles};
  FlatMap<Mapping> mappings_{kMaxMappings};  // by address
};

}  // namespace gpuprobe::injector
