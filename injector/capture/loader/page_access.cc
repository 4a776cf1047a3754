#include "injector/capture/loader/page_access.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "injector/base/own_descriptor.h"
#include "injector/base/own_memory.h"

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
  static constinit char buffer[4096] = {};  // the thread may have little stack
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

// An error where the pages cannot be read, or written.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

bool Populate(uintptr_t begin, uintptr_t end, int how) noexcept {
  const int before = errno;
  auto* start = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
  const bool done = madvise(start, end - begin, how) == 0;
  errno = before;
  return done;
}

bool KernelPopulates() noexcept {
  enum : int { kUnknown, kYes, kNo };
  static constinit std::atomic<int> known{kUnknown};
  alignas(kPageBytes) static constinit char page[kPageBytes] = {};
  int answer = known.load(std::memory_order_relaxed);
  if (answer == kUnknown) {
    const auto begin = reinterpret_cast<uintptr_t>(page);
    answer = Populate(begin, begin + kPageBytes, kPopulateWrite) ? kYes : kNo;
    known.store(answer, std::memory_order_relaxed);
  }
  return answer == kYes;
}

}  // namespace

bool CanRead(uintptr_t begin, uintptr_t end) noexcept {
  if (KernelPopulates()) return Populate(begin, end, kPopulateRead);
  for (char byte = 0; begin < end; begin += kPageBytes) {
    const auto* from = reinterpret_cast<const void*>(begin);  // NOLINT(performance-no-int-to-ptr)
    if (ReadMemory(from, &byte, sizeof(byte)) == ReadResult::kGone) return false;
  }
  return true;
}

bool CanWrite(uintptr_t address) noexcept {
  const uintptr_t begin = address & ~(kPageBytes - 1);
  if (KernelPopulates()) return Populate(begin, begin + kPageBytes, kPopulateWrite);
  const int before = errno;
  const Access access = AccessOf(address);
  errno = before;
  return access == Access::kWritable;
}

}  // namespace gpuprobe::injector::nccl
