#include "injector/base/loaded_objects.h"

#include <atomic>
#include <cerrno>

#include "injector/base/futex.h"

namespace gpuprobe::injector {

namespace {

constinit std::atomic<uint32_t> visits{0};  // threads that hold, or are about to take, the lock of the list
constinit std::atomic<uint32_t> forks{0};   // threads that fork
constinit thread_local uint32_t own_visits = 0;  // a signal handler may fork in the middle of one
constinit std::atomic<bool> waits{true};         // false once a forking thread has waited in vain

void EndVisit() noexcept {
  if (visits.fetch_sub(1, std::memory_order_seq_cst) == 1 && forks.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&visits), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr,
            0);
}

void Visit(ObjectVisitor visit, void* data) noexcept {
  ++own_visits;
  dl_iterate_phdr(visit, data);
  --own_visits;
}

}  // namespace

bool VisitLoadedObjects(ObjectVisitor visit, void* data) noexcept {
  visits.fetch_add(1, std::memory_order_seq_cst);
  const bool free = forks.load(std::memory_order_seq_cst) == 0;
  if (free) Visit(visit, data);
  EndVisit();
  return free;
}

void AlwaysVisitLoadedObjects(ObjectVisitor visit, void* data) noexcept {
  for (uint32_t waited = 0; waited < kMostForkWaitMs; ++waited) {
    if (VisitLoadedObjects(visit, data)) return;
    FutexWait(forks, forks.load(std::memory_order_relaxed), 1);
  }
  Visit(visit, data);
}

void BeforeFork() noexcept {
  const int before = errno;
  forks.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t waited = 0; own_visits == 0 && waits.load(std::memory_order_relaxed); ++waited) {
    const uint32_t inside = visits.load(std::memory_order_seq_cst);
    if (inside == 0) break;
    if (waited == kMostForkWaitMs) waits.store(false, std::memory_order_relaxed);
    FutexWait(visits, inside, 1);
  }
  errno = before;
}

void AfterForkInParent() noexcept { forks.fetch_sub(1, std::memory_order_seq_cst); }

void AfterForkInChild() noexcept {
  visits.store(own_visits == 0 ? 0 : 1, std::memory_order_relaxed);
  forks.store(0, std::memory_order_relaxed);
}

}  // namespace gpuprobe::injector
