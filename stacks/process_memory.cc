#include "stacks/process_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "stacks/proc_path.h"

namespace gpuprobe::stacks {
namespace {

bool Refuses(int error) { return error == EPERM || error == ENOSYS || error == EACCES || error == ESRCH; }

}  // namespace

ProcessMemory::~ProcessMemory() {
  if (file_ >= 0) close(file_);
}

bool ProcessMemory::OpenFile() const {
  refused_ = errno;
  if (!may_open_) return false;
  file_ = open(ProcPath(pid_, "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) return false;
  by_file_ = true;
  refused_ = 0;
  return true;
}

size_t ProcessMemory::ReadSome(uint64_t address, void* to, size_t size) const {
  if (!by_file_) {
    const iovec local{to, size};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): another process's address
    const iovec remote{reinterpret_cast<void*>(address), size};
    const ssize_t n = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (!Refuses(errno) || !OpenFile()) return 0;
  }
  const ssize_t n = pread(file_, to, size, static_cast<off_t>(address));
  return n < 0 ? 0 : static_cast<size_t>(n);
}

bool ProcessMemory::ReadEach(const uint64_t* addresses, size_t count, void* to, size_t size) const {
  if (!by_file_) {
    iovec remote[kMostAtOnce];
    for (size_t i = 0; i < count; ++i) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): another process's address
      remote[i] = {reinterpret_cast<void*>(addresses[i]), size};
    }
    const iovec local{to, count * size};
    const ssize_t n = process_vm_readv(pid_, &local, 1, remote, count, 0);
    if (n >= 0 || !Refuses(errno)) return n == static_cast<ssize_t>(count * size);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!Read(addresses[i], static_cast<char*>(to) + i * size, size)) return false;
  }
  return true;
}

bool ProcessMemory::Read(uint64_t address, void* to, size_t size) const {
  return ReadSome(address, to, size) == size;
}

}  // namespace gpuprobe::stacks
