// How bytes get from one rank to another: a letter in an unnamed file of the sender's process, which the
// others open and read.
//
// A word in the segment tells the readers which letter is theirs. All of this runs on the driver's scheduler
// thread and never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gpusim::nccl {

// Bytes in memory of the device.
struct Piece {
  uint64_t address = 0;
  uint64_t bytes = 0;  // 0: this rank has none to give
};

// Where a letter is in its sender's file, or one of these two.
constexpr uint64_t kNoLetter = 0;     // no bytes are moved
constexpr uint64_t kZerosLetter = 1;  // all that would be in it is memory that nobody wrote

// What this process sent.
class Mailbox {
 public:
  static Mailbox& OfProcess();

  // The file, made at the first call; -1: the system refused.
  int File();
  // Copies the pieces, in order; returns the letter's word. It is dropped after `is_read` says so.
  uint64_t Send(const std::vector<Piece>& pieces, std::function<bool()> is_read);

 private:
  struct Sent {
    uint64_t place;
    uint64_t bytes;
    std::function<bool()> is_read;
  };
  void DropRead();

  int file_ = -1;
  uint64_t next_ = 0;
  std::vector<Sent> sent_;
};

// The mailbox of a process, to read from it; -1: the process is gone, or cannot be looked into.
int OpenMailbox(int32_t pid, int32_t file);

enum class Content { kNone, kZeros, kBytes };

// One letter, as its receiver sees it.
class Letter {
 public:
  Letter(int file, uint64_t word) : file_(file), word_(word) {}
  // A part of a piece. `into` is resized, and filled if there are bytes.
  Content Read(size_t piece, uint64_t from, uint64_t bytes, std::vector<char>* into) const;

 private:
  const int file_;
  const uint64_t word_;
};

// True if all of it is allocated.
bool IsMemory(uint64_t address, uint64_t bytes);
// Calls `touched(address, bytes)` for each stretch that was ever written or read: the rest reads as zero and
// stays free of cost as long as nobody looks at it.
void ForEachTouched(uint64_t address, uint64_t bytes,
                    const std::function<void(uint64_t address, uint64_t bytes)>& touched);

}  // namespace gpusim::nccl
