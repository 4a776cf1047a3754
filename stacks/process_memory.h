// Reads the memory of a process, one's own or another's, without stopping it.
//
// A wrong address is an error and never a fault, so pointers that may be stale can be followed. Nothing is
// allocated and no lock is taken. process_vm_readv is used where it is allowed, else /proc/PID/mem, if a
// descriptor may be opened: a sandbox may forbid either.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::stacks {

class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t pid, bool may_open = true) : pid_(pid), may_open_(may_open) {}
  ~ProcessMemory();
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  pid_t pid() const { return pid_; }
  // All `size` bytes, or false.
  bool Read(uint64_t address, void* to, size_t size) const;
  template <class T>
  bool Read(uint64_t address, T& value) const {
    return Read(address, &value, sizeof value);
  }
  // `size` bytes at each of `count` addresses, one after the other; all of them, or false. `count`: at most
  // kMostAtOnce.
  static constexpr size_t kMostAtOnce = 16;
  bool ReadEach(const uint64_t* addresses, size_t count, void* to, size_t size) const;
  // As much as is mapped from `address` on, up to `size` bytes.
  size_t ReadSome(uint64_t address, void* to, size_t size) const;
  // errno of the last read that the kernel refused to do at all (EPERM, ESRCH, ENOSYS); 0 if none was.
  int refused() const { return refused_; }

 private:
  bool OpenFile() const;

  pid_t pid_;
  bool may_open_;
  mutable int refused_ = 0;
  mutable int file_ = -1;  // /proc/PID/mem, opened when process_vm_readv is refused
  mutable bool by_file_ = false;
};

}  // namespace gpuprobe::stacks
