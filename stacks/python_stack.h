// The Python stacks of a process, read from outside its interpreter: no GIL, no signal, nothing is stopped.
//
// The threads run on while they are read. So the chain of frames is read, then the names, then the chain
// again: only what both times agree on is a stack, and everything else is torn and said to be. Frames that
// were in the chain before are read many at once, since most are still there: a system call for each would be
// nearly all of the cost.
//
//   _PyRuntime            thread state ─► frame ─► frame ─►     frame ─► code ─► name, file, table of lines
//     └► interpreter ─►         │                                 └ instruction ───────────────────► line
//          └► thread state ─► thread state ─► ...
//
// All loops are bounded, and nothing is allocated.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "stacks/process_memory.h"
#include "stacks/python_layout.h"

namespace gpuprobe::stacks {

// What the texts and the line of a frame follow from: the same place has the same ones.
struct PythonPlace {
  uint64_t code = 0;  // the same as long as the function exists
  uint64_t instruction = 0;
  uint64_t function = 0;  // this and the next: addresses of what the code object refers to
  uint64_t file = 0;
  uint64_t lines = 0;
  int32_t first_line = 0;

  bool operator==(const PythonPlace&) const = default;
};

struct PythonFrame {
  PythonPlace place;
  uint32_t known = 0;  // what FindPlace says of it; if not 0, the rest is not read
  int32_t line = 0;    // 0: not known
  // C called it: one call of the evaluation loop runs it and those further in, up to the next entry.
  bool entry = false;
  uint64_t loop = 0;  // of an entry: an address in the native frame of that call; 0: not known (before 3.12)
  std::string_view function;
  std::string_view file;  // as it was compiled: may be relative
};

// For a reader that keeps what it has read: its number of the place, 0 if it has none.
using FindPlace = uint32_t (*)(const void* in, const PythonPlace& place);

enum class StackQuality : uint8_t {
  kWhole,
  kOuterMissing,  // deeper than kMostFrames
  // The thread was calling or returning every time that it was read. If it has frames at all, these are the
  // outer ones, which were there all the time.
  kTorn,
};

// One thread's stack, innermost frame first. Its texts lie in itself.
class PythonStack {
 public:
  static constexpr size_t kMostFrames = 192;

  size_t size() const { return size_; }
  const PythonFrame& operator[](size_t i) const { return frames_[i]; }
  StackQuality quality() const { return quality_; }

 private:
  friend class PythonProcess;
  struct Link {
    uint64_t frame = 0;
    uint64_t code = 0;
    uint64_t instruction = 0;
    bool entry = false;
    uint64_t loop = 0;
  };
  struct Chain {
    size_t size = 0;
    bool cut = false;    // there are more
    bool whole = false;  // up to the outermost
    std::array<Link, kMostFrames> links;
  };
  static constexpr size_t kTextBytes = size_t{24} << 10;
  // Frames of the chain that was read last, of Python and of C, and what they held when they were read again.
  static constexpr size_t kMostBlocks = 256;
  static constexpr size_t kBlockBytes = 128;
  struct Blocks {
    size_t size = 0;
    std::array<uint64_t, kMostBlocks> addresses;
    std::array<char, kMostBlocks * kBlockBytes> bytes;
  };

  std::string_view Keep(const char* text, size_t size);
  void AddInnermost(std::string_view function);
  // Of a torn stack: how many of the outermost frames were there all the time.
  size_t CountOuter() const;
  void KeepOuter(size_t count);
  void DropInternal();

  size_t size_ = 0;
  size_t unknown_ = 0;  // while it is read: so many of the innermost ones may be none, or have no name
  StackQuality quality_ = StackQuality::kTorn;
  std::array<PythonFrame, kMostFrames> frames_;
  Chain chain_;
  Chain again_;
  Blocks blocks_;
  size_t text_used_ = 0;
  std::array<char, kTextBytes> text_;
};

struct PythonThread {
  uint64_t state = 0;  // address of its PyThreadState
  uint64_t interpreter_state = 0;
  int64_t interpreter = 0;  // 0: the main one
  pid_t tid = 0;            // 0: not known
};

class PythonProcess {
 public:
  static constexpr size_t kMostThreads = 1024;

  // May it open files of /proc? If not, only OpenAt finds an interpreter.
  explicit PythonProcess(pid_t pid, bool may_open = true) : memory_(pid, may_open) {}

  // Looks for the interpreter. Again, if the process may have loaded one since.
  Unreadable Open();
  // The interpreter that the object mapped at `base` exports. `path` tells the version, where nothing else
  // does (before 3.11).
  Unreadable OpenAt(uint64_t base, std::string_view path);
  // The kernel refuses to read the memory.
  bool refused() const { return memory_.refused() != 0; }
  // As PY_VERSION_HEX; 0: not known.
  uint32_t version() const { return layout_.version; }

  // Threads that have a Python state, of all interpreters, until `visit` returns false. The list is read
  // while it changes: a thread may be missing, and one that ended may be in it, without frames.
  template <class Visit>
  void ForEachThread(const Visit& visit) const {
    PythonThread thread;
    Cursor cursor;
    while (NextThread(cursor, thread)) {
      if constexpr (std::is_same_v<decltype(visit(thread)), bool>) {
        if (!visit(thread)) return;
      } else {
        visit(thread);
      }
    }
  }

  // The stack of `thread`. False: nothing could be read of it, because it has ended. While it collects
  // garbage, kCollecting stands for the collector, which is no function of Python's and has no place.
  static constexpr std::string_view kCollecting = "<garbage collection>";
  enum class Torn : uint8_t { kNothing, kOuter };  // what is kept of a torn stack
  bool ReadStack(const PythonThread& thread, PythonStack& stack, FindPlace find = nullptr,
                 const void* in = nullptr, Torn torn = Torn::kNothing) const;
  // Whether a thread that sleeps on the word at `address` waits for its interpreter's lock (GIL). Whoever
  // waits for a lock of the program's own has given that one up.
  bool IsLock(const PythonThread& thread, uint64_t address) const;
  // State of the thread that holds the lock; 0: none does, or it is not known.
  uint64_t HolderOfLock(const PythonThread& thread) const;
  // ReadStack for a thread that the caller has stopped, so that reading it once is enough. It gives up at
  // `until_ns` of CLOCK_MONOTONIC: torn.
  void ReadStopped(const PythonThread& thread, uint64_t until_ns, PythonStack& stack);

 private:
  struct Cursor {
    bool begun = false;
    uint64_t interpreter = 0;
    int64_t id = 0;
    uint64_t thread = 0;
    size_t seen = 0;
  };

  bool NextThread(Cursor& cursor, PythonThread& thread) const;
  pid_t TidOf(uint64_t thread) const;
  bool ReadInnermost(uint64_t thread, uint64_t& frame) const;
  bool ReadChain(uint64_t thread, PythonStack::Blocks& blocks, PythonStack::Chain& chain) const;
  void ReadBlocks(PythonStack::Blocks& blocks, size_t bytes) const;
  bool ReadNames(PythonStack& stack, FindPlace find, const void* in, Torn torn) const;
  static void AddUnknown(PythonStack& stack);
  static bool Agree(const PythonStack& stack);
  bool AddFrame(PythonStack& stack, const PythonPlace& place, uint32_t known) const;
  bool IsLate() const;
  bool IsCodeType(uint64_t type) const;
  bool IsCollecting(const PythonThread& thread) const;
  uint64_t AddressOfLock(const PythonThread& thread) const;
  std::string_view ReadText(uint64_t string, PythonStack& stack) const;
  int32_t LineOf(const PythonPlace& place) const;

  ProcessMemory memory_;
  PythonLayout layout_;
  uint64_t runtime_ = 0;
  mutable uint64_t code_type_ = 0;
  uint64_t until_ns_ = UINT64_MAX;
};

}  // namespace gpuprobe::stacks
