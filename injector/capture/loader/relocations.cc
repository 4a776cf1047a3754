#include "injector/capture/loader/relocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "injector/base/own_descriptor.h"

namespace gpuprobe::injector::nccl {

namespace {

enum class Access { kUnknown, kReadOnly, kWritable };

// Parses /proc/self/maps line by line ("start-end perms ...") without a line buffer.
class MapsParser {
 public:
  explicit MapsParser(uintptr_t address) noexcept : address_(address) {}

  // Feeds one character; true once the mapping of the address was found.
  bool Feed(char c) noexcept {
    if (c == '\n') {
      Reset();
      return false;
    }
    switch (field_) {
      case 0:
        if (c == '-') return Next();
        start_ = start_ * 16 + Digit(c);
        return false;
      case 1:
        if (c == ' ') return Next();
        end_ = end_ * 16 + Digit(c);
        return false;
      case 2:
        if (position_++ != 1) return false;
        field_ = 3;
        if (address_ < start_ || address_ >= end_) return false;
        access_ = c == 'w' ? Access::kWritable : Access::kReadOnly;
        return true;
      default:
        return false;
    }
  }
  Access Found() const noexcept { return access_; }

 private:
  static uintptr_t Digit(char c) noexcept {
    return static_cast<uintptr_t>(c >= 'a' ? c - 'a' + 10 : c - '0');
  }
  bool Next() noexcept {
    ++field_;
    return false;
  }
  void Reset() noexcept {
    field_ = 0;
    position_ = 0;
    start_ = 0;
    end_ = 0;
  }

  uintptr_t address_;
  uintptr_t start_ = 0;
  uintptr_t end_ = 0;
  int field_ = 0;
  int position_ = 0;
  Access access_ = Access::kUnknown;
};

Access AccessOf(uintptr_t address) noexcept {
  OwnDescriptor file;
  if (!file.Open("/proc/self/maps", O_RDONLY)) return Access::kUnknown;
  MapsParser parser(address);
  char buffer[4096];
  bool found = false;
  off_t position = 0;
  while (!found) {
    const ssize_t got = pread(file.get(), buffer, sizeof(buffer), position);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    position += got;
    for (ssize_t i = 0; i < got && !found; ++i) found = parser.Feed(buffer[i]);
  }
  return parser.Found();
}

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void Store(void** slot, void* value) noexcept { __atomic_store_n(slot, value, __ATOMIC_RELEASE); }

class Scanner {
 public:
  explicit Scanner(const RelocationPolicy& policy) noexcept : policy_(policy) {}

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
      void* value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
      void* replacement = policy_.replacement(object, {value, symbol, type});
      if (replacement == nullptr || replacement == value) return;
      if (!last_ones_ && policy_.comes_last != nullptr && policy_.comes_last(symbol)) {
        deferred_ = true;
      } else {
        Write(object, slot, replacement);
      }
    });
  }

  ScanResult result;
  const RelocationPolicy& Policy() noexcept { return policy_; }

 private:
  // As many objects from `next_` on as fit into kLockedNs, again and again.
  void PatchInPieces() noexcept {
    next_ = 0;
    do {
      index_ = 0;
      more_ = false;
      piece_began_ns_ = MonotonicNs();
      dl_iterate_phdr(
          [](dl_phdr_info* info, size_t, void* data) noexcept {
            return static_cast<Scanner*>(data)->PatchInPiece(*info) ? 0 : 1;
          },
          this);
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
    if (!object.InRelro(address)) {
      Store(slot, value);
      ++result.patched;
      return;
    }
    // Asked once for the object: either all of its slots are written or none.
    if (!relro_asked_) relro_access_ = AccessOf(address);
    relro_asked_ = true;
    switch (relro_access_) {
      case Access::kUnknown:
        ++result.failed;
        return;
      case Access::kWritable:
        ++result.postponed;
        return;
      case Access::kReadOnly:
        break;
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
  bool relro_asked_ = false;
  Access relro_access_ = Access::kUnknown;  // of the object's read-only part, as the loader has it now
  bool last_ones_ = false;                  // the pass over what comes last
  bool deferred_ = false;                   // something is left for it
  size_t index_ = 0;                        // of the object that the linker shows next
  size_t next_ = 0;                         // of the object to scan next
  bool more_ = false;
  uint64_t piece_began_ns_ = 0;
};

}  // namespace

ScanResult ScanRelocations(const RelocationPolicy& policy) noexcept {
  Scanner scanner(policy);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        auto* scan = static_cast<Scanner*>(data);
        scan->result.adds = info->dlpi_adds;
        scan->result.subs = info->dlpi_subs;
        scan->Policy().see_object(ElfObject(*info));
        return 0;
      },
      &scanner);
  scanner.PatchAll();
  return scanner.result;
}

void ForObjectAt(const void* address, void (*visit)(const ElfObject& object) noexcept) noexcept {
  struct Search {
    uintptr_t address;
    void (*visit)(const ElfObject& object) noexcept;
  } search{reinterpret_cast<uintptr_t>(address), visit};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        const auto& wanted = *static_cast<const Search*>(data);
        const ElfObject object(*info);
        if (!object.Contains(wanted.address)) return 0;
        wanted.visit(object);
        return 1;
      },
      &search);
}

uint64_t LoadedObjectsEver() noexcept {
  uint64_t adds = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        *static_cast<uint64_t*>(data) = info->dlpi_adds;
        return 1;
      },
      &adds);
  return adds;
}

}  // namespace gpuprobe::injector::nccl
