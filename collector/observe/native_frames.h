// The native stack of a copied thread, unwound and named by elfutils' libdw after the thread has been let go.
//
// Objects are opened by the path that the process knows, through its root if it has another one. Their first
// page must be the one in its memory; what was deleted or replaced since is read from there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collector/observe/stack_frame.h"
#include "collector/observe/thread_copy.h"

namespace gpuprobe::observe {

// One call: the function, and within it those that the compiler inlined, innermost first.
struct NativeFrame {
  std::string symbol;          // as linkers know it; empty: not known
  uint64_t stack_pointer = 0;  // where its frame begins; it ends where the next one does
  std::vector<StackFrame> frames;
  bool interrupted = false;  // by a signal, whose handler is the call inside of it
};

struct NativeStack {
  std::vector<NativeFrame> calls;  // innermost first
  bool whole = false;              // to where the thread began
};

class NativeUnwinder {
 public:
  static constexpr size_t kMostCalls = 512;

  explicit NativeUnwinder(pid_t pid);
  ~NativeUnwinder();
  NativeUnwinder(const NativeUnwinder&) = delete;
  NativeUnwinder& operator=(const NativeUnwinder&) = delete;

  // Where the mapping that holds `address` ends.
  uint64_t EndOfMapping(uint64_t address) const;
  NativeStack Unwind(const ThreadCopy& copy);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gpuprobe::observe
