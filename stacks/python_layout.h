// Where CPython keeps what a stack is read from.
//
// CPython 3.13 and newer say it themselves, in a table at the start of `_PyRuntime` that was made for this.
// For 3.8 to 3.12 the tables are here; tests hold them against those interpreters. All are of 64-bit builds
// for Linux, and the same for all releases of a minor version.
#pragma once

#include <cstdint>

#include "stacks/process_memory.h"

namespace gpuprobe::stacks {

// How the line of an instruction is found.
enum class LineTable : uint8_t {
  kPairs,      // 3.8, 3.9: co_lnotab
  kRanges,     // 3.10: co_linetable
  kLocations,  // 3.11 and newer: co_linetable
};

// Offsets in bytes from the start of the structure that the name begins with.
struct PythonLayout {
  uint32_t version = 0;  // as PY_VERSION_HEX: 0x030b07f0 is 3.11.7

  uint32_t runtime_interpreters = 0;
  uint32_t interpreter_next = 0;
  uint32_t interpreter_id = 0;
  uint32_t interpreter_threads = 0;
  // The interpreter's lock (GIL) and its collector of garbage: in each interpreter, or in the runtime.
  bool lock_in_runtime = false;
  uint32_t lock_holder = 0;  // the thread state that holds the lock, or held it last; 0: not known
  uint32_t lock_locked = 0;
  bool collecting_in_runtime = false;
  uint32_t collecting = 0;  // 1: garbage is being collected; 0: not known
  uint32_t thread_next = 0;
  uint32_t thread_pthread = 0;
  uint32_t thread_native_id = 0;  // 0: not kept (before 3.11)
  uint32_t thread_frame = 0;
  bool frame_behind_pointer = false;  // thread_frame points to a pointer to the frame (3.11, 3.12) ...
  uint32_t pointer_frame = 0;         // ... at this offset
  uint32_t frame_previous = 0;
  uint32_t frame_code = 0;
  uint32_t frame_instruction = 0;
  bool instruction_is_index = false;  // a number (before 3.11), not an address
  uint32_t instruction_scale = 1;     // bytes of code for each
  uint32_t frame_owner = 0;           // 0: not kept
  uint32_t frame_entry = 0;           // whether C called this frame (3.11); 0: not kept
  uint32_t code_first_line = 0;
  uint32_t code_file = 0;
  uint32_t code_name = 0;  // qualified from 3.11 on
  uint32_t code_lines = 0;
  uint32_t code_instructions = 0;
  LineTable lines = LineTable::kLocations;
  uint32_t string_length = 0;
  uint32_t string_state = 0;    // bits 2 to 4: bytes for each character; 5: compact; 6: ASCII
  uint32_t string_ascii = 0;    // where the text of an ASCII string begins
  uint32_t string_compact = 0;  // of another one
  uint32_t bytes_size = 0;
  uint32_t bytes_data = 0;
  uint32_t object_type = 0;
  uint32_t type_name = 0;
};

// Why the stacks of a process cannot be read.
enum class Unreadable : uint8_t {
  kNo,              // they can
  kNoProcess,       // it has ended
  kNotPermitted,    // another user's, or the kernel or a sandbox forbids it
  kNoInterpreter,   // no CPython is mapped, or it exports nothing that leads to it
  kUnknownVersion,  // older than 3.8, newer than 3.14, or a build that says nothing
  kFreeThreaded,    // built without the GIL
};

// The layout of a CPython whose `_PyRuntime` is at `runtime`. `version`: what is known of it from elsewhere,
// 0: nothing. On failure `layout.version` is the version if that much was known.
Unreadable ReadPythonLayout(const ProcessMemory& memory, uint64_t runtime, uint32_t version,
                            PythonLayout& layout);

}  // namespace gpuprobe::stacks
