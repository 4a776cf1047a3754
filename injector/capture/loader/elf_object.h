// Reads a loaded object's dynamic section: its symbols by name, its relocations, and its memory layout.
//
// This is only ELF; patching.h decides what to patch. Nothing here calls the dynamic linker. Thread: any,
// inside a dl_iterate_phdr callback: the linker's lock keeps the object loaded, and lets one thread at a time
// note what of it can be read (readable_memory.h). Allocation: none. Failure: an object that lacks the
// tables, or whose tables cannot be read, has no symbols and no relocations.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/capture/loader/readable_memory.h"

namespace gpuprobe::injector::nccl {

// The one place where addresses become pointers.
template <typename Pointee>
Pointee* PointerTo(uintptr_t address) noexcept {
  return reinterpret_cast<Pointee*>(address);  // NOLINT(performance-no-int-to-ptr)
}

class ElfObject {
 public:
  // Valid inside the callback of dl_iterate_phdr, until the next one is made.
  explicit ElfObject(const dl_phdr_info& info) noexcept;

  std::string_view FileName() const noexcept {
    return file_name_;
  }  // without folders; empty for the program itself
  uintptr_t Base() const noexcept { return base_; }
  // As other objects name it when they need it; null if it has no such name. Valid like the object.
  const char* SoName() const noexcept;
  // True when the object is linked to the one of that name.
  bool Needs(std::string_view so_name) const noexcept;

  // True when `address` lies in one of the object's segments.
  bool Contains(uintptr_t address) const noexcept;
  // True when the segment of `address` is writable by its flags (RELRO aside).
  bool InWritableSegment(uintptr_t address) const noexcept;
  // True when `address` is in memory that the loader makes read-only after relocation.
  bool InRelro(uintptr_t address) const noexcept { return address >= relro_start_ && address < relro_end_; }

  // True when the segment of `address` has code by its flags.
  bool InExecutableSegment(uintptr_t address) const noexcept;
  // True when the memory is there and may be read at this moment.
  bool CanRead(uintptr_t address, size_t bytes) const noexcept { return memory.Has(address, bytes); }
  // Where its code begins, as far as that is known: 0 if it is not.
  uintptr_t Init() const noexcept { return init_; }

  // Address of the function or object that this object defines under `name`, null if it does not.
  void* FindSymbol(const char* name) const noexcept;
  // Where the symbol table keeps the value of that symbol; 0 if it does not.
  uintptr_t FindSymbolValue(const char* name) const noexcept;

  // Calls visit(slot, symbol name, relocation type) for each JUMP_SLOT, GLOB_DAT and 64 relocation against a
  // named symbol without addend. The name is valid until visit returns.
  template <typename Visit>
  void ForEachSymbolRelocation(Visit visit) const noexcept {
    for (const Table& relocations : {rela_, jump_slots_}) {
      for (uintptr_t at = relocations.begin; at < relocations.end; at += sizeof(ElfW(Rela))) {
        ElfW(Rela) entry;
        if (!memory.Get(at, &entry)) break;
        const uint32_t type = ELF64_R_TYPE(entry.r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
        const char* name = entry.r_addend == 0 ? NameOf(ELF64_R_SYM(entry.r_info)) : nullptr;
        if (name != nullptr) visit(PointerTo<void*>(base_ + entry.r_offset), name, type);
      }
    }
  }

 private:
  struct Table {
    uintptr_t begin;
    uintptr_t end;
  };
  struct Segment {
    uintptr_t begin;
    uintptr_t end;
    uint32_t flags;
  };
  // Of the object that is being looked at.
  static ReadableMemory memory;

  void ReadHeaders(const dl_phdr_info& info) noexcept;
  void ReadDynamic() noexcept;
  const Segment* SegmentOf(uintptr_t address) const noexcept;
  // Null for no symbol, and for names that cannot be read.
  const char* NameOf(size_t symbol) const noexcept;
  uintptr_t AddressOfSymbol(size_t symbol) const noexcept { return symbols_ + symbol * sizeof(ElfW(Sym)); }
  // The number of the symbol that the object defines under `name`, 0 if it does not.
  size_t FindByGnuHash(const char* name) const noexcept;
  size_t FindBySysvHash(const char* name) const noexcept;
  size_t FindNumber(const char* name) const noexcept;
  bool Defines(size_t symbol, const char* name) const noexcept;

  static constexpr size_t kMostSegments = 16;  // four, mostly

  uintptr_t base_;
  std::string_view file_name_;
  Segment segments_[kMostSegments] = {};
  size_t segment_count_ = 0;
  uintptr_t init_ = 0;
  uintptr_t relro_start_ = 0;
  uintptr_t relro_end_ = 0;
  uintptr_t symbols_ = 0;
  Table dynamic_{0, 0};
  Table strings_{0, 0};
  uintptr_t so_name_ = 0;  // in the strings
  uintptr_t gnu_hash_ = 0;
  uintptr_t sysv_hash_ = 0;
  Table rela_{0, 0};
  Table jump_slots_{0, 0};
};

// True for the object that this code is in.
bool IsOurself(const ElfObject& object) noexcept;

// The first loaded object, ourselves aside, that defines `name`: its address there, or null.
void* FindInLoadedObjects(const char* name) noexcept;

}  // namespace gpuprobe::injector::nccl
