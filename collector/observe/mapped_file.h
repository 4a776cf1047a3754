// The file that a process has mapped, opened for reading.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "stacks/process_memory.h"

namespace gpuprobe::observe {

inline constexpr char kVdso[] = "[vdso]";  // the kernel's own object, which has no file

struct MappedPart {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;  // in the file
  bool writable = false;
};

struct MappedObject {
  std::string path;  // as /proc/PID/maps has it
  std::vector<MappedPart> parts;
};

struct OpenedObject {
  int file = -1;     // the caller closes it
  std::string path;  // empty: a copy of what is in memory, since the file is gone
};

// By its own path, or through the process's root (another container), or by its mapping (root only). A file
// counts if its first page is the one in memory.
OpenedObject OpenMapped(const stacks::ProcessMemory& memory, const MappedObject& object);

}  // namespace gpuprobe::observe
