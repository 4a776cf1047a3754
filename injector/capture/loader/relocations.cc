#include "injector/capture/loader/relocations.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "injector/base/loaded_objects.h"
#include "injector/capture/loader/page_access.h"

namespace gpuprobe::injector::nccl {

namespace {

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void Store(void** slot, void* value) noexcept { __atomic_store_n(slot, value, __ATOMIC_RELEASE); }

class Scanner {
 public:
  Scanner(const RelocationPolicy& policy, size_t first) noexcept : policy_(policy), first_(first) {}

  void PatchAll() noexcept {
    deferred_ = false;
    PatchInPieces();
    if (!deferred_) return;
    last_ones_ = true;
    PatchInPieces();
  }

  void PatchObject(const ElfObject& object) noexcept {
    if (IsOurself(object) || policy_.skip(object)) return;
    relro_asked_ = false;
    object.ForEachSymbolRelocation([&](void** slot, const char* symbol, uint32_t type) {
      const auto address = reinterpret_cast<uintptr_t>(slot);
      if (address % sizeof(void*) != 0 || !policy_.concerns(symbol)) return;
      if (!object.CanRead(address, sizeof(void*))) return;
      void* value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
      const bool unresolved =
          type == R_X86_64_JUMP_SLOT && object.Contains(reinterpret_cast<uintptr_t>(value));
      void* replacement = policy_.replacement(object, {value, symbol, type, unresolved});
      if (replacement == nullptr || replacement == value) return;
      if (!last_ones_ && policy_.comes_last != nullptr && policy_.comes_last(symbol)) {
        deferred_ = true;
      } else {
        Write(object, slot, replacement);
      }
    });
  }

  void BindOwnCalls(const ElfObject& object, const char* name, const void* value, void* function) noexcept {
    object.ForEachSymbolRelocation([&](void** slot, const char* symbol, uint32_t /*type*/) {
      if (std::strcmp(symbol, name) == 0 && __atomic_load_n(slot, __ATOMIC_ACQUIRE) == value)
        Write(object, slot, function);
    });
  }

  ScanResult result;

 private:
  // As many objects from `next_` on as fit into kLockedNs, again and again.
  void PatchInPieces() noexcept {
    next_ = first_;
    do {
      index_ = 0;
      more_ = false;
      piece_began_ns_ = MonotonicNs();
      const bool visited = VisitLoadedObjects(
          [](dl_phdr_info* info, size_t, void* data) noexcept {
            return static_cast<Scanner*>(data)->PatchInPiece(*info) ? 0 : 1;
          },
          this);
      if (!visited) ++result.postponed;
    } while (more_);
  }

  // False ends the piece.
  bool PatchInPiece(const dl_phdr_info& info) noexcept {
    if (index_++ < next_) return true;
    PatchObject(ElfObject(info));
    ++next_;
    more_ = MonotonicNs() - piece_began_ns_ > kLockedNs;
    return !more_;
  }

  void Write(const ElfObject& object, void** slot, void* value) noexcept {
    const auto address = reinterpret_cast<uintptr_t>(slot);
    if (!object.InWritableSegment(address)) {
      ++result.failed;
      return;
    }
    const bool relro = object.InRelro(address);
    if (!relro && !CanWrite(address)) {
      ++result.failed;
      return;
    }
    if (!relro) {
      Store(slot, value);
      ++result.patched;
      return;
    }
    // Asked once for the object: either all of its slots are written or none.
    if (!relro_asked_) relro_is_open_ = CanWrite(address);
    relro_asked_ = true;
    if (relro_is_open_) {
      ++result.postponed;
      return;
    }
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* start = PointerTo<void>(address & ~(page - 1));
    if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
      ++result.failed;
      return;
    }
    Store(slot, value);
    // A refusal leaves the page writable: the program runs on, only less protected.
    if (mprotect(start, page, PROT_READ) != 0) ++result.failed;
    ++result.patched;
  }

  const RelocationPolicy& policy_;
  size_t first_;  // index of the first object to scan
  bool relro_asked_ = false;
  bool relro_is_open_ = false;  // the object's read-only part is writable: the loader has not finished it
  bool last_ones_ = false;      // the pass over the symbols that come last
  bool deferred_ = false;       // something is left for it
  size_t index_ = 0;            // of the object that the linker shows next
  size_t next_ = 0;             // of the object to scan next
  bool more_ = false;
  uint64_t piece_began_ns_ = 0;
};

constexpr RelocationPolicy kNothing{nullptr, nullptr, nullptr, nullptr};

// The linker appends what it loads, so the objects that came after `since` are the last ones, at most as many
// as were loaded since.
size_t FirstSince(uint64_t since) noexcept {
  struct Count {
    uint64_t adds = 0;
    size_t objects = 0;
  } count;
  static_cast<void>(VisitLoadedObjects(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        auto* counted = static_cast<Count*>(data);
        counted->adds = info->dlpi_adds;
        ++counted->objects;
        return 0;
      },
      &count));
  const uint64_t added = count.adds - since;
  return added >= count.objects ? 0 : count.objects - static_cast<size_t>(added);
}

}  // namespace

ScanResult ScanRelocations(const RelocationPolicy& policy, uint64_t since) noexcept {
  const size_t first = since == 0 ? 0 : FirstSince(since);
  struct Look {
    const RelocationPolicy& policy;
    size_t left;
    ScanResult result;
  } look{policy, first, {}};
  static_cast<void>(VisitLoadedObjects(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        auto* wanted = static_cast<Look*>(data);
        wanted->result.adds = info->dlpi_adds;
        wanted->result.subs = info->dlpi_subs;
        if (wanted->left == 0) {
          wanted->policy.see_object(ElfObject(*info));
        } else {
          --wanted->left;
        }
        return 0;
      },
      &look));
  Scanner scanner(policy, first);
  scanner.result = look.result;
  scanner.PatchAll();
  return scanner.result;
}

void BindOwnCalls(const char* symbol, const void* value, void* function) noexcept {
  struct Binding {
    const char* symbol;
    const void* value;
    void* function;
  } binding{symbol, value, function};
  ForEachObject(
      [](const ElfObject& object, void* data) noexcept {
        const auto* wanted = static_cast<const Binding*>(data);
        if (!IsOurself(object)) return;
        Scanner(kNothing, 0).BindOwnCalls(object, wanted->symbol, wanted->value, wanted->function);
      },
      &binding);
}

void ForEachObject(void (*visit)(const ElfObject& object, void* data) noexcept, void* data) noexcept {
  struct Visit {
    void (*visit)(const ElfObject& object, void* data) noexcept;
    void* data;
  } each{visit, data};
  AlwaysVisitLoadedObjects(
      [](dl_phdr_info* info, size_t, void* all) noexcept {
        const auto* wanted = static_cast<const Visit*>(all);
        wanted->visit(ElfObject(*info), wanted->data);
        return 0;
      },
      &each);
}

void ForObjectAt(const void* address, void (*visit)(const ElfObject& object) noexcept) noexcept {
  struct Search {
    uintptr_t address;
    void (*visit)(const ElfObject& object) noexcept;
  } search{reinterpret_cast<uintptr_t>(address), visit};
  static_cast<void>(VisitLoadedObjects(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        const auto& wanted = *static_cast<const Search*>(data);
        const ElfObject object(*info);
        if (!object.Contains(wanted.address)) return 0;
        wanted.visit(object);
        return 1;
      },
      &search));
}

uint64_t LoadedObjectsEver() noexcept {
  uint64_t adds = 0;
  static_cast<void>(VisitLoadedObjects(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        *static_cast<uint64_t*>(data) = info->dlpi_adds;
        return 1;
      },
      &adds));
  return adds;
}

}  // namespace gpuprobe::injector::nccl
