#include "injector/core/program_memory.h"

#include <elf.h>
#include <link.h>
#include <signal.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "injector/base/own_memory.h"

namespace gpuprobe::injector {

namespace {

constexpr uintptr_t kPage = 4096;  // or a multiple of it
// Deeper stacks are not looked at: their contents are copied.
constexpr uintptr_t kMaxStackBytes = uintptr_t{8} << 20;
constexpr uint8_t kStackLooks = 8;  // at stacks that turn out to be others: a fiber's, a signal handler's

struct Extent {
  uintptr_t from = 0;
  uintptr_t to = 0;

  // Bytes of it from `address` on, 0 if it lies outside.
  size_t BytesFrom(uintptr_t address) const noexcept {
    return address >= from && address < to ? to - address : 0;
  }
};

constexpr size_t kMaxConstants = 4;
constinit Extent constants[kMaxConstants] = {};
enum class Known : uint8_t { kNo, kBeingFound, kYes };
constinit std::atomic<Known> constants_known{Known::kNo};

// Segments of the program's own file that are never written. The kernel says where its headers are.
void FindConstants() noexcept {
  // NOLINTBEGIN(performance-no-int-to-ptr): the auxiliary vector holds numbers
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
  // NOLINTEND(performance-no-int-to-ptr)
  const size_t count = headers == nullptr ? 0 : getauxval(AT_PHNUM);
  const auto* end = headers + count;
  const auto* own =
      std::find_if(headers, end, [](const ElfW(Phdr) & header) { return header.p_type == PT_PHDR; });
  size_t found = 0;
  for (const auto* header = headers; own != end && header != end && found < kMaxConstants; ++header) {
    if (header->p_type != PT_LOAD || (header->p_flags & (PF_R | PF_W)) != PF_R) continue;
    const uintptr_t from = reinterpret_cast<uintptr_t>(headers) - own->p_vaddr + header->p_vaddr;
    constants[found++] = {from, from + header->p_filesz};
  }
}

bool ConstantsAreKnown() noexcept {
  Known known = constants_known.load(std::memory_order_acquire);
  if (known != Known::kNo || !constants_known.compare_exchange_strong(known, Known::kBeingFound))
    return known == Known::kYes;
  FindConstants();
  constants_known.store(Known::kYes, std::memory_order_release);
  return true;
}

// Whether every page from `from` up to `to` can be read, by reading a byte of each.
bool AllReadable(uintptr_t from, uintptr_t to) noexcept {
  char byte = 0;
  for (uintptr_t page = from & ~(kPage - 1); page < to; page += kPage) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in the middle of the stack
    if (ReadMemory(reinterpret_cast<const void*>(page), &byte, 1) != ReadResult::kRead) return false;
  }
  return true;
}

// Where the thread's stack begins, which grows downwards. The kernel puts some random bytes there for the
// main thread; the C library puts its own data there for the others.
uintptr_t StackStart(const ThreadState& thread) noexcept {
  if (thread.tid == static_cast<uint32_t>(getpid())) return getauxval(AT_RANDOM);
  return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
}

// Frames that are in use, from ours up to where the stack begins: they cannot be unmapped while we run. The
// bounds grow with the deepest call so far. A stack that is not connected with the thread's own is a fiber's
// or a signal handler's, which may lie anywhere.
Extent StackInUse(ThreadState& thread) noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (here >= thread.stack_from && here < thread.stack_to) return {here, thread.stack_to};
  if (thread.stack_looks == kStackLooks) return {};
  if (thread.stack_to == 0) thread.stack_from = thread.stack_to = StackStart(thread);
  if (here >= thread.stack_to || thread.stack_to - here > kMaxStackBytes) return {};
  if (!AllReadable(here, thread.stack_from)) {
    ++thread.stack_looks;
    return {};
  }
  thread.stack_from = here & ~(kPage - 1);
  return {here, thread.stack_to};
}

// Bytes that can be read in place, from `from` on.
size_t BytesInPlace(ThreadState& thread, const void* from) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(from);
  for (size_t i = 0; ConstantsAreKnown() && i < kMaxConstants; ++i) {
    if (const size_t bytes = constants[i].BytesFrom(address); bytes != 0) return bytes;
  }
  return StackInUse(thread).BytesFrom(address);
}

}  // namespace

bool CopyFromProgram(ThreadState& thread, const void* from, void* to, size_t bytes) noexcept {
  if (BytesInPlace(thread, from) < bytes) return ReadMemory(from, to, bytes) == ReadResult::kRead;
  std::memcpy(to, from, bytes);
  return true;
}

bool TextOfProgram(ThreadState& thread, const char* from, char* space, size_t capacity,
                   std::string_view* text) noexcept {
  *text = {};
  if (from == nullptr) return true;
  const size_t in_place = BytesInPlace(thread, from);
  const size_t length = in_place == 0 ? 0 : strnlen(from, std::min(capacity, in_place));
  if (length < in_place) {
    *text = {from, length};
    return true;
  }
  const ptrdiff_t copied = CopyText(from, space, capacity);
  if (copied > 0) *text = {space, static_cast<size_t>(copied)};
  return copied >= 0;
}

bool IsBelowOwnStackInUse(ThreadState& thread, const void* below) noexcept {
  const Extent in_use = StackInUse(thread);
  const auto address = reinterpret_cast<uintptr_t>(below);
  if (in_use.from == in_use.to || address >= in_use.from || in_use.from - address > kMaxStackBytes)
    return false;
  // An array in an outer frame may serve as an alternate stack.
  stack_t alternate{};
  if (sigaltstack(nullptr, &alternate) != 0 || (alternate.ss_flags & SS_ONSTACK) != 0) return false;
  return AllReadable(address, in_use.from);
}

}  // namespace gpuprobe::injector
