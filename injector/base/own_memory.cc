#include "injector/base/own_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace gpuprobe::injector {

namespace {

constexpr uintptr_t kPage = 4096;  // or a multiple of it: nothing ends in the middle of one

constinit std::atomic<bool> copies_refused{false};

// Whether the page of `address` can be read: a futex requeue of no threads, for which the kernel first
// compares a word of the page with a value.
ReadResult LookAtPage(uintptr_t address) noexcept {
  uint32_t other = 0;
  const uintptr_t word = address & ~(sizeof(uint32_t) - 1);
  if (syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, &other, 0) >= 0 || errno == EAGAIN)
    return ReadResult::kRead;
  return errno == EFAULT ? ReadResult::kGone : ReadResult::kUnsupported;
}

ReadResult ReadAfterALook(const void* from, void* to, size_t bytes) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(from);
  if (begin > UINTPTR_MAX - bytes - kPage) return ReadResult::kGone;
  for (uintptr_t at = begin; at < begin + bytes; at = (at & ~(kPage - 1)) + kPage) {
    if (const ReadResult result = LookAtPage(at); result != ReadResult::kRead) return result;
  }
  std::memcpy(to, from, bytes);
  return ReadResult::kRead;
}

ReadResult ReadByCopy(const void* from, void* to, size_t bytes) noexcept {
  const iovec source{const_cast<void*>(from), bytes};
  const iovec target{to, bytes};
  const ssize_t got = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
  if (got == static_cast<ssize_t>(bytes)) return ReadResult::kRead;
  return got >= 0 || errno == EFAULT ? ReadResult::kGone : ReadResult::kUnsupported;
}

template <typename Character>
ptrdiff_t Copy(const Character* from, Character* to, size_t capacity) noexcept {
  if (from == nullptr) return 0;
  const auto* source = reinterpret_cast<const char*>(from);
  auto* target = reinterpret_cast<char*>(to);
  const size_t most = capacity * sizeof(Character);
  size_t length = 0;
  for (size_t done = 0; done < most;) {
    const size_t rest_of_page = kPage - reinterpret_cast<uintptr_t>(source + done) % kPage;
    const size_t piece = std::min(most - done, rest_of_page);
    if (ReadMemory(source + done, target + done, piece) != ReadResult::kRead) return -1;
    done += piece;
    for (; length < done / sizeof(Character); ++length) {
      if (to[length] == 0) return static_cast<ptrdiff_t>(length);
    }
  }
  return static_cast<ptrdiff_t>(length);
}

}  // namespace

ReadResult ReadMemory(const void* from, void* to, size_t bytes) noexcept {
  const int before = errno;
  ReadResult result = ReadResult::kUnsupported;
  if (!copies_refused.load(std::memory_order_relaxed)) {
    result = ReadByCopy(from, to, bytes);
    if (result == ReadResult::kUnsupported) copies_refused.store(true, std::memory_order_relaxed);
  }
  if (result == ReadResult::kUnsupported) result = ReadAfterALook(from, to, bytes);
  errno = before;
  return result;
}

ptrdiff_t CopyText(const char* from, char* to, size_t capacity) noexcept { return Copy(from, to, capacity); }

ptrdiff_t CopyText(const wchar_t* from, wchar_t* to, size_t capacity) noexcept {
  return Copy(from, to, capacity);
}

size_t ReadText(const char* from, char* to, size_t capacity) noexcept {
  const ptrdiff_t length = CopyText(from, to, capacity);
  return length < 0 ? 0 : static_cast<size_t>(length);
}

}  // namespace gpuprobe::injector
