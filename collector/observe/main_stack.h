// Where the main thread of a process is stuck in its Python code.
//
// One look at a stack means little: every training loop is somewhere. A thread that is in the same function
// as a second ago, called from the same lines, is worth a word. A look reads some 50 small pieces of memory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "gpuprobe/v1/wire.pb.h"
#include "stacks/python_stack.h"

namespace gpuprobe::observe {

class MainStack {
 public:
  // Innermost frames that are kept.
  static constexpr size_t kMostFrames = 48;
  // Looks after which a process without an interpreter is searched for one again; twice as many each time.
  static constexpr int kFirstPause = 16;
  static constexpr int kLongestPause = 1024;

  explicit MainStack(pid_t pid) : pid_(pid), process_(std::make_unique<stacks::PythonProcess>(pid)) {}

  // Adds the stack if it is that of the look before.
  void Look(v1::ProcessObservation& observation);

 private:
  bool Read(v1::PythonStack& stack);

  pid_t pid_;
  std::unique_ptr<stacks::PythonProcess> process_;
  bool open_ = false;
  int pause_ = kFirstPause;
  int looks_until_search_ = 0;
  v1::PythonStack last_;
};

}  // namespace gpuprobe::observe
