// Replaces a function in the symbol table of the loaded object that exports it, so that whatever is loaded
// or looked up from then on finds the replacement.
//
// Patched relocations (relocations.h) reach only objects that are already there: one that is opened later,
// and calls the function in its constructor, has its relocations filled in and used before any scan can find
// them. The loader fills them in from the exporting object's .dynsym, where a symbol's value is relative to
// the object's base. So we store there the distance from the base to the replacement, modulo 2^64:
//
//   libcupti at 0x7f00'0000'0000, cuptiSubscribe 0x4a140  ->  ours at 0x7e80'0000'1000: 0xffffff80'0000'1000
//
// Objects that are bound to the function already are not affected; nor is the object itself if it binds its
// own calls directly (-Bsymbolic) or has resolved them. What it has not resolved yet is resolved here first.
// dladdr no longer finds a name for the original function.
//
// Thread: any, inside a dl_iterate_phdr callback. Allocation: none. Failure: the symbol stays as it is, if
// the object has none of that name and address, or its table is not in memory that can be made writable
// without taking the right to execute from code beside it.
#pragma once

#include "injector/capture/loader/elf_object.h"

namespace gpuprobe::injector::nccl {

class Exports {
 public:
  // Valid as long as `object`.
  explicit Exports(const ElfObject& object) noexcept : object_(object) {}

  // Resolves the object's own calls that are not resolved yet: real(name) is the function, null for others.
  void ResolveOwnCalls(void* (*real)(const char* name) noexcept) noexcept;
  // True when the symbol leads to `ours` afterwards.
  bool Replace(const char* name, const void* real, const void* ours) noexcept;

 private:
  const ElfObject& object_;
};

}  // namespace gpuprobe::injector::nccl
