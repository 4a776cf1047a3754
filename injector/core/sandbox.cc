#include "injector/core/sandbox.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "injector/base/own_memory.h"

namespace gpuprobe::injector {

constinit std::atomic<void (*)() noexcept> end_before_filter{nullptr};

namespace {

struct Filters {
  bool known = false;
  uint64_t mode = 0;   // SECCOMP_MODE_FILTER
  uint64_t count = 0;  // 0 also where the kernel does not say
};

// The number behind "\nNAME:\t".
bool FindNumber(const char* text, const char* name, uint64_t* number) noexcept {
  const char* found = std::strstr(text, name);
  if (found == nullptr) return false;
  *number = std::strtoull(found + std::strlen(name), nullptr, 10);
  return true;
}

// No more than a loader does: open, read, close. CUDA has just used it on this thread.
Filters ReadFilters(const char* path) noexcept {
  static constinit char text[8192];  // the starting thread's alone; its stack may be small
  Filters filters;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return filters;
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  close(fd);
  text[size > 0 ? size : 0] = '\0';
  filters.known = FindNumber(text, "\nSeccomp:\t", &filters.mode);
  FindNumber(text, "\nSeccomp_filters:\t", &filters.count);
  return filters;
}

bool IsHarmless(uint32_t action) noexcept {
  const uint32_t kind = action & SECCOMP_RET_ACTION_FULL;
  return kind == SECCOMP_RET_ALLOW || kind == SECCOMP_RET_LOG || kind == SECCOMP_RET_ERRNO;
}

}  // namespace

bool IsInSandbox() noexcept {
  const Filters own = ReadFilters("/proc/thread-self/status");
  if (!own.known || own.mode == 0) return false;
  const Filters first = ReadFilters("/proc/1/status");
  return !first.known || first.mode != own.mode || first.count < own.count;
}

bool MayKill(const sock_fprog* filter) noexcept {
  sock_fprog program{};
  if (ReadMemory(filter, &program, sizeof(program)) != ReadResult::kRead) return true;
  sock_filter piece[64];
  constexpr size_t kPiece = sizeof(piece) / sizeof(piece[0]);
  for (size_t at = 0; at < program.len; at += kPiece) {
    const size_t count = std::min(kPiece, program.len - at);
    if (ReadMemory(program.filter + at, piece, count * sizeof(piece[0])) != ReadResult::kRead) return true;
    for (size_t i = 0; i < count; ++i) {
      if (BPF_CLASS(piece[i].code) != BPF_RET) continue;
      if (BPF_RVAL(piece[i].code) != BPF_K || !IsHarmless(piece[i].k)) return true;
    }
  }
  return false;
}

}  // namespace gpuprobe::injector
