// Visits the loaded objects as dl_iterate_phdr does, but never while the process is being forked.
//
// dl_iterate_phdr holds the lock of the linker's list. glibc does not free that lock in a child, so a child
// forked during a visit would hang in its first dlopen. A forking thread therefore waits until no visit is in
// progress (one takes less than a millisecond), and no visit begins until it has forked.
//
// Thread: any. Allocation: none. Failure: a forking thread waits at most kMostForkWaitMs and then forks
// anyway; after that no fork waits again, because the program's own locks block our visits. _Fork and clone
// run no handlers; their children may not call dlopen anyway.
#pragma once

#include <link.h>

#include <cstdint>

namespace gpuprobe::injector {

using ObjectVisitor = int (*)(dl_phdr_info* info, size_t size, void* data);
inline constexpr uint32_t kMostForkWaitMs = 1000;

// False: the process is being forked, and nothing was visited.
[[nodiscard]] bool VisitLoadedObjects(ObjectVisitor visit, void* data) noexcept;

// The same, but waits for a fork to end first, at most kMostForkWaitMs; then visits anyway.
void AlwaysVisitLoadedObjects(ObjectVisitor visit, void* data) noexcept;

// The fork handlers (lifecycle.cc).
void BeforeFork() noexcept;
void AfterForkInParent() noexcept;
void AfterForkInChild() noexcept;

}  // namespace gpuprobe::injector
