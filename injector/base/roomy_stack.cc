#include "injector/base/roomy_stack.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "injector/base/mapping.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kNeeded = size_t{192} << 10;
constexpr size_t kMapped = size_t{512} << 10;
constexpr size_t kGuard = 4096;

// Set before and read after the exchange, on one thread: StartProbe runs once.
ucontext_t there;
ucontext_t here;
void (*started)() = nullptr;

void Enter() { started(); }

// Below the caller's frame. A stack that is not the thread's own (a coroutine's) has no room that we know of.
bool HasRoom() noexcept {
  const auto now = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (syscall(SYS_gettid) == syscall(SYS_getpid)) {
    rlimit limit{};
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= 4 * kNeeded;
  }
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* lowest = nullptr;
  size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<uintptr_t>(lowest);
  return known && now > begin && now < begin + bytes && now - begin >= kNeeded;
}

}  // namespace

void RunWithRoom(void (*function)()) noexcept {
  if (HasRoom()) return function();
  void* stack = MapMemory(kMapped);
  if (stack == nullptr || getcontext(&there) != 0) return function();
  mprotect(stack, kGuard, PROT_NONE);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = kMapped;
  there.uc_link = &here;
  started = function;
  makecontext(&there, Enter, 0);
  if (swapcontext(&here, &there) != 0) function();
  UnmapMemory(stack, kMapped);
}

}  // namespace gpuprobe::injector
