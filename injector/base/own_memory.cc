#include "injector/base/own_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace gpuprobe::injector {

ReadResult ReadMemory(const void* from, void* to, size_t bytes) noexcept {
  const int before = errno;
  const iovec source{const_cast<void*>(from), bytes};
  const iovec target{to, bytes};
  const ssize_t got = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
  const bool gone = got >= 0 || errno == EFAULT;
  errno = before;
  if (got == static_cast<ssize_t>(bytes)) return ReadResult::kRead;
  return gone ? ReadResult::kGone : ReadResult::kUnsupported;
}

size_t ReadText(const char* from, char* to, size_t capacity) noexcept {
  constexpr size_t kPage = 4096;  // or a multiple of it: nothing ends in the middle of one
  if (from == nullptr) return 0;
  size_t done = 0;
  while (done < capacity) {
    const size_t rest_of_page = kPage - reinterpret_cast<uintptr_t>(from + done) % kPage;
    const size_t piece = std::min(capacity - done, rest_of_page);
    if (ReadMemory(from + done, to + done, piece) != ReadResult::kRead) return 0;
    const size_t length = strnlen(to + done, piece);
    done += length;
    if (length < piece) break;
  }
  return done;
}

}  // namespace gpuprobe::injector
