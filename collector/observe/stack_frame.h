// One line of a stack, of Python or of native code.
#pragma once

#include <cstdint>
#include <string>

namespace gpuprobe::observe {

struct StackFrame {
  std::string function;  // native: demangled; empty: not known
  std::string file;
  int line = 0;  // 0: not known
  bool native = false;
  std::string object;   // native: the program or library, with its path
  uint64_t offset = 0;  // in it, as addr2line takes it
  bool operator==(const StackFrame&) const = default;
};

}  // namespace gpuprobe::observe
