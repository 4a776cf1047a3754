// The line of an instruction, from the table that CPython compiles into each code object.
#pragma once

#include <cstdint>

#include "stacks/process_memory.h"
#include "stacks/python_layout.h"

namespace gpuprobe::stacks {

// `table`: `size` bytes in the process. `offset`: of the instruction in its code, in bytes; below 0: not
// begun. 0: the table says nothing of it.
int32_t FindLine(const ProcessMemory& memory, LineTable kind, uint64_t table, uint64_t size, int64_t offset,
                 int32_t first_line);

}  // namespace gpuprobe::stacks
