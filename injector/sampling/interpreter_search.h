// Finds CPython among the loaded objects, again when others have been loaded since.
//
// The linker's list is only copied while it is locked; the objects themselves are read afterwards, in a way
// that survives their unloading. Thread: the probe's own. Allocation: none. Failure: while the process is
// being forked, or has more than kMostObjects, some objects are not looked at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stacks/python_stack.h"

namespace gpuprobe::injector {

class InterpreterSearch {
 public:
  static constexpr size_t kMostObjects = 1024;

  // False: the process is being forked, so that nothing was looked at. `python` is open if `result` is kNo.
  bool Look(stacks::PythonProcess* python, stacks::Unreadable* result) noexcept;

 private:
  static constexpr size_t kMostNamed = 8;
  static constexpr size_t kNameBytes = 64;

  uint64_t loaded_ = 0;  // how many objects ever were, at the last look
  size_t count_ = 0;
  uintptr_t bases_[kMostObjects] = {};
  // The names of those that tell a version.
  size_t named_ = 0;
  size_t named_object_[kMostNamed] = {};
  char names_[kMostNamed][kNameBytes] = {};

  friend struct ObjectList;
};

}  // namespace gpuprobe::injector
