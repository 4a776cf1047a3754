// A descriptor of ours in somebody else's process: out of the program's way, and never taken for granted.
//
// The program numbers descriptors, too. It counts on the low ones (`close(0); open(..)`, select()), and it
// may close everything that it does not know, ours included, and get the number back for a file of its own.
// So ours is moved to 512 or above (as high as possible where the limit is lower), and it is ours only as
// long as device and inode are those that it was opened with: looked up before every use, and before it is
// closed. What remains is the instant between the look and the call.
//
// Example: the program runs closefrom(3) and opens a checkpoint, which gets number 512. StillOurs() is false
// from then on, Close() forgets the number, and the checkpoint stays open.
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
