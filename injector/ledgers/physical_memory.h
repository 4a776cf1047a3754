// Tracks how long each handle's physical memory lives in the virtual memory API.
//
// Memory from cuMemCreate lives until its handle was released as often as it was obtained (create, retain)
// and every mapping is gone, as well as every binding to a multicast object or into a sparse array: the
// driver holds the memory for these as it does for mappings. Such an object has no memory of its own; its
// bindings end with it. An import may get the handle of existing memory, or one that another thread is just
// releasing; the release event, when it comes, shows which.
//
// The driver reuses handles and addresses, possibly before the thread that released them has reported it. A
// late event is recognised by when its call began, and belongs to the previous owner. Unknown memory was made
// before the probe was there, and memory imported from another process is followed only for its bindings:
// neither was counted for this process. Thread: the draining one. Allocation: mappings, on growth. Failure:
// memory that finds no place is not tracked, and LOSS_DEFINITIONS_FULL is counted.
#pragma once

#include <cstdint>

#include "injector/base/flat_map.h"
#include "injector/base/losses.h"

namespace gpuprobe::injector {

class PhysicalMemory {
 public:
  static constexpr size_t kMaxHandles = size_t{1} << 20;
  static constexpr size_t kMaxMappings = size_t{1} << 20;
  static constexpr size_t kMaxBindings = size_t{1} << 14;

  // False: no place is left for it.
  bool Created(uint64_t handle, uint64_t time_ns) noexcept;
  void Retained(uint64_t handle) noexcept;
  // An imported handle, which has no memory here. The driver may return the handle of known memory: that is
  // one more reference to it.
  void Imported(uint64_t handle, uint64_t time_ns) noexcept;
  // True when the memory is gone with it. `began_ns`: when the call was entered, 0 if that was not seen.
  bool Released(uint64_t handle, uint64_t began_ns) noexcept;
  // Calls ended(handle) when it replaces a mapping that was the last reference to its memory.
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
      if (Unreferenced(copy, 0)) ended(copy.handle);
    }
    const Mapping mapping{bytes, handle, handle_since_ns, time_ns, replaces};
    if (mappings_.Insert(address, mapping) == nullptr)
      return CountLoss(wire::LossReason::kLossDefinitionsFull);
    if (Handle* live = Live(handle); live != nullptr) AddReference(live, &live->mappings);
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
        mapping->replaces = false;  // a late event for the previous mapping
        continue;
      }
      mappings_.Erase(address - copy.bytes);
      if (Unreferenced(copy, began_ns)) ended(copy.handle);
    }
  }

  // A device's memory is bound to a multicast object, or to a part of an array, and replaces what was bound
  // there.
  template <typename OnEnded>
  void Bound(uint64_t object, int32_t device, uint64_t offset, uint64_t handle, uint64_t time_ns,
             OnEnded ended) noexcept {
    Handle* memory = Live(handle);
    if (memory == nullptr) return;
    AddReference(memory, &memory->mappings);  // before the other goes, which may be the same
    const Binding binding{object, offset, handle, memory->since_ns, time_ns, device};
    Unbound(object, device, offset, 0, ended);
    if (bindings_.Insert(BindingKey(object, device, offset), binding) != nullptr) return;
    CountLoss(wire::LossReason::kLossDefinitionsFull);
    const Mapping reference{0, handle, binding.handle_since_ns, 0, false};
    if (Unreferenced(reference, 0)) ended(handle);
  }
  template <typename OnEnded>
  void Unbound(uint64_t object, int32_t device, uint64_t offset, uint64_t began_ns, OnEnded ended) noexcept {
    const Binding* binding = bindings_.Find(BindingKey(object, device, offset));
    if (binding == nullptr) return;
    if (began_ns != 0 && began_ns < binding->since_ns) return;  // a late event for the previous binding
    Drop(*binding, began_ns, ended);
  }
  // A handle or an array is gone, and with it what was bound to it. `began_ns`: of the call that ended it, 0
  // if that was not seen.
  template <typename OnEnded>
  void ObjectEnded(uint64_t object, uint64_t began_ns, OnEnded ended) noexcept {
    for (bool found = bindings_.size() != 0; found;) {
      Binding binding{};
      found = false;
      bindings_.ForEach([&](uint64_t, const Binding& each) {
        if (each.object == object) binding = each;
        found = found || each.object == object;
      });
      if (found) Drop(binding, began_ns, ended);
    }
  }
  // Handle of the memory that is mapped there; 0: not known.
  uint64_t HandleAt(uint64_t address) noexcept;

 private:
  struct Handle {
    uint64_t since_ns;
    uint32_t references;  // created and retained, less released
    uint32_t mappings;
    uint32_t owed;  // releases still to be reported for memory that had this handle before
    // References and mappings that came with, or since, an import while the memory was there.
    uint32_t since_import;
    uint64_t imported_ns;
  };
  struct Mapping {
    uint64_t bytes;
    uint64_t handle;
    uint64_t handle_since_ns;  // says which of the memories that had this handle
    uint64_t since_ns;
    bool replaces;  // a mapping whose end has not been reported yet
  };

  struct Binding {
    uint64_t object;
    uint64_t offset;  // in the object
    uint64_t handle;
    uint64_t handle_since_ns;
    uint64_t since_ns;
    int32_t device;
  };

  static uint64_t BindingKey(uint64_t object, int32_t device, uint64_t offset) noexcept {
    return MixBits(MixBits(object) + offset) + static_cast<uint64_t>(device);
  }
  Handle* Live(uint64_t handle) noexcept;
  template <typename OnEnded>
  void Drop(Binding binding, uint64_t began_ns, OnEnded ended) noexcept {
    const Mapping reference{0, binding.handle, binding.handle_since_ns, binding.since_ns, false};
    bindings_.Erase(BindingKey(binding.object, binding.device, binding.offset));
    if (Unreferenced(reference, began_ns)) ended(reference.handle);
  }
  static void AddReference(Handle* entry, uint32_t* count) noexcept {
    ++*count;
    if (entry->imported_ns != 0) ++entry->since_import;
  }
  // These three return true when the memory is gone. `began_ns`: as in Released; a mapping whose end was not
  // seen ended no earlier than it began.
  bool Unreferenced(const Mapping& mapping, uint64_t began_ns) noexcept;
  bool DropReference(uint64_t handle, Handle* entry, uint32_t* count, uint64_t began_ns) noexcept;
  bool EndIfUnused(uint64_t handle, const Handle& entry) noexcept;

  FlatMap<Handle> handles_{kMaxHandles};
  FlatMap<Mapping> mappings_{kMaxMappings};  // by address
  FlatMap<Binding> bindings_{kMaxBindings};
};

}  // namespace gpuprobe::injector
