// What the threads of a running process are doing: state, system call and Python stack, seen from outside.
// Nothing is stopped, and no code runs in the process, unless native stacks are asked for.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collector/observe/stack_frame.h"
#include "stacks/python_stack.h"

namespace gpuprobe::observe {

struct ThreadStack {
  pid_t tid = 0;     // 0: not known (Python before 3.11 on a libc that is not glibc)
  std::string name;  // of the thread, as the kernel knows it
  char state = 0;    // as in /proc/PID/stat: R, S, D, T ...; 0: not known
  std::string call;  // the system call that it sleeps in, "read /data/x"; empty: none, or not known
  bool waits_for_python = false;   // the call waits for the interpreter's lock (GIL) ...
  pid_t lock_holder = 0;           // ... which this thread has; 0: not known
  std::vector<StackFrame> frames;  // innermost first: Python's, and native ones if they were asked for
  stacks::StackQuality quality = stacks::StackQuality::kWhole;  // of the Python stack
  bool python = false;                                          // it runs Python

  // With native stacks:
  std::vector<StackFrame> python_apart;  // Python frames that do not fit the native ones
  bool native_cut = false;               // the outer native frames are not known
  std::string why_no_native;             // why there is none, as the rest of "no native stack: ..."
  uint64_t stopped_ns = 0;               // at most
  std::vector<std::string>
      kernel;  // functions of the kernel that an uninterruptible thread is in, innermost first
};

struct ProcessStacks {
  pid_t pid = 0;
  std::string command;                                      // program and arguments
  stacks::Unreadable unreadable = stacks::Unreadable::kNo;  // why there are no Python stacks
  uint32_t python = 0;                                      // version, as PY_VERSION_HEX; 0: not known
  // Main thread first, then those with a Python stack, then the others if native stacks were asked for.
  std::vector<ThreadStack> threads;
  size_t other_threads = 0;  // not in it
};

enum class Native : uint8_t {
  kNone,
  kMainThread,  // stops the main thread alone
  kAllThreads,
};

// `unreadable` is kNoProcess if there is no such process; everything else is then empty.
ProcessStacks ReadStacks(pid_t pid, Native native = Native::kNone);

// Why the memory of a process may not be read, or its threads not be stopped, with the remedy.
std::string WhyNotPermitted(pid_t pid);

}  // namespace gpuprobe::observe
