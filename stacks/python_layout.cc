#include "stacks/python_layout.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace gpuprobe::stacks {
namespace {

constexpr uint32_t Minor(uint32_t version) { return version >> 16; }
constexpr uint32_t k38 = 0x0308;
constexpr uint32_t k310 = 0x030a;
constexpr uint32_t k311 = 0x030b;
constexpr uint32_t k312 = 0x030c;
constexpr uint32_t k313 = 0x030d;
constexpr uint32_t k314 = 0x030e;

// What all versions without a table of their own share.
constexpr PythonLayout Common() {
  return {.runtime_interpreters = 32,
          .interpreter_next = 0,
          .interpreter_id = 24,
          .interpreter_threads = 8,
          .lock_in_runtime = true,
          .lock_holder = 360,
          .lock_locked = 368,
          .collecting = 816,
          .thread_next = 8,
          .thread_pthread = 176,
          .thread_frame = 24,
          .frame_previous = 24,
          .frame_code = 32,
          .frame_instruction = 104,
          .instruction_is_index = true,
          .instruction_scale = 1,
          .code_first_line = 40,
          .code_file = 104,
          .code_name = 112,
          .code_lines = 120,
          .lines = LineTable::kPairs,
          .string_length = 16,
          .string_state = 32,
          .string_ascii = 48,
          .string_compact = 72,
          .bytes_size = 16,
          .bytes_data = 32,
          .object_type = 8,
          .type_name = 24};
}

constexpr PythonLayout Layout38() {
  PythonLayout layout = Common();
  layout.interpreter_id = 16;
  layout.lock_holder = 1160;
  layout.lock_locked = 1168;
  layout.collecting_in_runtime = true;
  layout.collecting = 544;
  return layout;
}

constexpr PythonLayout Layout310() {
  PythonLayout layout = Common();
  layout.frame_instruction = 96;
  layout.instruction_scale = 2;
  layout.lines = LineTable::kRanges;
  return layout;
}

constexpr PythonLayout Layout311() {
  PythonLayout layout = Common();
  layout.runtime_interpreters = 40;
  layout.interpreter_id = 48;
  layout.interpreter_threads = 16;
  layout.lock_holder = 368;
  layout.lock_locked = 376;
  layout.collecting = 848;
  layout.thread_pthread = 152;
  layout.thread_native_id = 160;
  layout.thread_frame = 56;
  layout.frame_behind_pointer = true;
  layout.pointer_frame = 8;
  layout.frame_previous = 48;
  layout.frame_instruction = 56;
  layout.instruction_is_index = false;
  layout.frame_owner = 69;
  layout.frame_entry = 68;
  layout.code_first_line = 72;
  layout.code_file = 112;
  layout.code_name = 128;
  layout.code_lines = 136;
  layout.code_instructions = 184;
  layout.lines = LineTable::kLocations;
  return layout;
}

constexpr PythonLayout Layout312() {
  PythonLayout layout = Layout311();
  layout.interpreter_id = 8;
  layout.interpreter_threads = 72;
  layout.lock_in_runtime = false;
  layout.lock_holder = 1048;
  layout.lock_locked = 1056;
  layout.collecting = 312;
  layout.thread_pthread = 136;
  layout.thread_native_id = 144;
  layout.pointer_frame = 0;
  layout.frame_previous = 8;
  layout.frame_code = 0;
  layout.frame_owner = 70;
  layout.frame_entry = 0;
  layout.code_first_line = 68;
  layout.code_instructions = 192;
  layout.string_ascii = 40;
  layout.string_compact = 56;
  return layout;
}

// CPython's own table: 8 bytes each. It grows by a minor version, never within one.
class OwnTable {
 public:
  static constexpr size_t kEntries = 96;

  bool Read(const ProcessMemory& memory, uint64_t runtime) {
    return memory.Read(runtime, entries_.data(), sizeof entries_) &&
           std::memcmp(entries_.data(), "xdebugpy", 8) == 0;
  }
  uint32_t version() const { return static_cast<uint32_t>(entries_[1]); }
  bool free_threaded() const { return entries_[2] != 0; }
  // The next entries in order. An offset that is too large for any structure makes the table invalid.
  uint32_t Take() {
    const uint64_t value = next_ < kEntries ? entries_[next_] : kMostOffset;
    ++next_;
    if (value >= kMostOffset) valid_ = false;
    return static_cast<uint32_t>(value);
  }
  void Skip(size_t entries) { next_ += entries; }
  bool valid() const { return valid_; }

 private:
  static constexpr uint64_t kMostOffset = uint64_t{1} << 30;
  std::array<uint64_t, kEntries> entries_{};
  size_t next_ = 3;
  bool valid_ = true;
};

bool TakeOwnTable(OwnTable& table, PythonLayout& layout) {
  const bool is_314 = Minor(layout.version) >= k314;
  table.Skip(2);  // size, finalizing
  layout.runtime_interpreters = table.Take();
  table.Skip(1);  // size
  layout.interpreter_id = table.Take();
  layout.interpreter_next = table.Take();
  layout.interpreter_threads = table.Take();
  table.Skip(is_314 ? 1 : 0);        // the main thread
  layout.collecting = table.Take();  // so far: of the collector
  table.Skip(3 + 2);                 // imports, sys, builtins; pointer to the lock, the lock
  table.Skip(1);                     // enabled
  layout.lock_locked = table.Take();
  layout.lock_holder = table.Take();
  table.Skip(is_314 ? 2 : 0);  // generations
  table.Skip(2);               // size, prev
  layout.thread_next = table.Take();
  table.Skip(1);  // interpreter
  layout.thread_frame = table.Take();
  layout.thread_pthread = table.Take();
  layout.thread_native_id = table.Take();
  table.Skip(2);  // data stack, status
  table.Skip(1);  // size
  layout.frame_previous = table.Take();
  layout.frame_code = table.Take();
  layout.frame_instruction = table.Take();
  table.Skip(1);  // local variables
  layout.frame_owner = table.Take();
  table.Skip(is_314 ? 2 : 0);  // stack pointer, index of thread-local code
  table.Skip(1);               // size
  layout.code_file = table.Take();
  table.Skip(1);  // unqualified name
  layout.code_name = table.Take();
  layout.code_lines = table.Take();
  layout.code_first_line = table.Take();
  table.Skip(3);  // arguments, names and kinds of local variables
  layout.code_instructions = table.Take();
  table.Skip(is_314 ? 1 : 0);  // thread-local code
  table.Skip(1);               // size
  layout.object_type = table.Take();
  table.Skip(1);  // size
  layout.type_name = table.Take();
  table.Skip(2);               // repr, flags
  table.Skip(3 + 3);           // tuple, list
  table.Skip(is_314 ? 4 : 0);  // set
  table.Skip(3 + 2 + 3);       // dict, float, int
  table.Skip(1);               // size
  layout.bytes_size = table.Take();
  layout.bytes_data = table.Take();
  table.Skip(1);  // size
  layout.string_state = table.Take();
  layout.string_length = table.Take();
  layout.string_ascii = table.Take();
  layout.string_compact = layout.string_ascii + 16;
  table.Skip(1);  // size
  layout.collecting += table.Take();
  layout.instruction_scale = 1;
  layout.lines = LineTable::kLocations;
  return table.valid();
}

}  // namespace

Unreadable ReadPythonLayout(const ProcessMemory& memory, uint64_t runtime, uint32_t version,
                            PythonLayout& layout) {
  OwnTable table;
  if (table.Read(memory, runtime)) {
    layout = {};
    layout.version = table.version();
    if (table.free_threaded()) return Unreadable::kFreeThreaded;
    if (Minor(layout.version) < k313 || Minor(layout.version) > k314) return Unreadable::kUnknownVersion;
    return TakeOwnTable(table, layout) ? Unreadable::kNo : Unreadable::kUnknownVersion;
  }
  switch (Minor(version)) {
    case k38:
      layout = Layout38();
      break;
    case k38 + 1:
      layout = Common();
      break;
    case k310:
      layout = Layout310();
      break;
    case k311:
      layout = Layout311();
      break;
    case k312:
      layout = Layout312();
      break;
    default:
      layout = {};
      break;
  }
  layout.version = version;
  return layout.runtime_interpreters == 0 ? Unreadable::kUnknownVersion : Unreadable::kNo;
}

}  // namespace gpuprobe::stacks
