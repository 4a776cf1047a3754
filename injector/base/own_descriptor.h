// Our own descriptor in the program's process: out of the program's way, and checked before every use.
//
// The program relies on low descriptor numbers (`close(0); open(..)`, select()), and it may close every
// descriptor that it does not know, including ours, and get the number back for a file of its own. So ours is
// moved to 512 or above (as high as possible if the limit is lower), and counts as ours only as long as it
// has the device and inode that it was opened with: checked before every use, and before it is closed. The
// instant between the check and the call remains.
//
// Example: the program runs closefrom(3) and opens a checkpoint, which gets number 512. StillOurs() is false
// from then on, Close() forgets the number, and the checkpoint stays open.
//
// The last sixteen descriptors that the process may have are the program's: with fewer, nothing is opened.
//
// At most eight are ours at any time: the socket, another file, the second number that moving one takes for a
// moment, and five that the sampler keeps (ThreadFiles::kMostFiles).
//
// Thread: one at a time. Allocation: none. Failure: false, and nothing is open.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace gpuprobe::injector {

inline constexpr int kLowestOwnDescriptor = 512;

class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  ~OwnDescriptor() { Close(); }
  OwnDescriptor(const OwnDescriptor&) = delete;
  OwnDescriptor& operator=(const OwnDescriptor&) = delete;

  // O_CLOEXEC is added.
  bool Open(const char* path, int flags, mode_t mode = 0) noexcept;
  // A Unix socket that does not block.
  bool OpenStreamSocket() noexcept;
  // Takes over `fd`, which has just been opened.
  bool Adopt(int fd) noexcept;
  // Closes it if it is still ours.
  void Close() noexcept;

  bool open() const noexcept { return fd_ >= 0; }
  bool StillOurs() const noexcept;
  // -1 when nothing is open.
  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// The file's first bytes; returns how many. Never moves a file position: should the number be the program's
// by then, nothing of its data is consumed.
size_t ReadOwnFile(const char* path, char* out, size_t capacity) noexcept;

}  // namespace gpuprobe::injector
