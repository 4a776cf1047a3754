#include "injector/nccl/relocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

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
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return Access::kUnknown;
  MapsParser parser(address);
  char buffer[4096];
  bool found = false;
  while (!found) {
    const ssize_t got = read(file, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t i = 0; i < got && !found; ++i) found = parser.Feed(buffer[i]);
  }
  close(file);
  return parser.Found();
}

void Store(void** slot, void* value) noexcept { __atomic_store_n(slot, value, __ATOMIC_RELEASE); }

class Scanner {
 public:
  explicit Scanner(const RelocationPolicy& policy) noexcept : policy_(policy) {}

  void PatchObject(const ElfObject& object) noexcept {
    if (IsOurself(object) || policy_.skip(object)) return;
    object.ForEachSymbolRelocation([&](void** slot, const char* symbol, uint32_t type) {
      const auto address = reinterpret_cast<uintptr_t>(slot);
      if (address % sizeof(void*) != 0 || !policy_.concerns(symbol)) return;
      void* value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
      void* replacement = policy_.replacement(object, {value, symbol, type});
      if (replacement != nullptr && replacement != value) Write(object, slot, replacement);
    });
  }

  ScanResult result;
  const RelocationPolicy& Policy() noexcept { return policy_; }

 private:
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
    switch (AccessOf(address)) {
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
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        static_cast<Scanner*>(data)->PatchObject(ElfObject(*info));
        return 0;
      },
      &scanner);
  return scanner.result;
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
