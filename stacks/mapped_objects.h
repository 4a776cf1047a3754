// The programs and libraries that a process has mapped, and the addresses of what they export, read from its
// memory: a file may have been replaced or deleted since, or lie in another container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stacks/process_memory.h"

namespace gpuprobe::stacks {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;  // in the file
  bool writable = false;
  bool executable = false;
  std::string_view path;  // empty: anonymous; valid until the next call
};

// Reads /proc/PID/maps piece by piece. Nothing is allocated.
class Mappings {
 public:
  explicit Mappings(pid_t pid);
  ~Mappings();
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  bool opened() const { return file_ >= 0; }
  // False at the end. A line that is longer than the buffer is skipped.
  bool Next(Mapping& mapping);

 private:
  bool NextLine(std::string_view& line);

  int file_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool skipping_ = false;
  char buffer_[8192];
};

// Address of the symbol `name` that the object mapped at `base` exports; 0: it exports none.
uint64_t FindExported(const ProcessMemory& memory, uint64_t base, std::string_view name);

}  // namespace gpuprobe::stacks
