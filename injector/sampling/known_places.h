// What the functions and lines at places in Python code are called (StringDef), so that a stack that was read
// before costs a few system calls instead of hundreds.
//
// Thread: the probe's own. Allocation: mappings, on growth. Failure: what finds no room is read again. A full
// table starts again, since code may have been freed.
#pragma once

#include <cstdint>

#include "injector/base/flat_map.h"
#include "stacks/python_stack.h"

namespace gpuprobe::injector {

class KnownPlaces {
 public:
  struct Names {
    uint32_t function = 0;  // StringDef
    uint32_t file = 0;      // StringDef
    uint32_t line = 0;
  };

  // A number for Of; 0: not known.
  uint32_t Find(const stacks::PythonPlace& place) const noexcept;
  // As long as nothing is added.
  const Names& Of(uint32_t number) const noexcept;
  void Add(const stacks::PythonPlace& place, const Names& names) noexcept;

 private:
  struct Entry {
    stacks::PythonPlace place;
    Names names;
  };
  static constexpr uint32_t kMost = 16384;

  Entry* entries() const noexcept { return reinterpret_cast<Entry*>(memory_.data()); }

  mutable FlatMap<uint32_t> numbers_{kMost};
  Mapping memory_;
  uint32_t used_ = 0;
};

}  // namespace gpuprobe::injector
