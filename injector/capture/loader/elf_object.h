// Reads a loaded object's dynamic section: its symbols by name, its relocations, and its memory layout.
//
// This is only ELF; patching.h decides what to patch. Nothing here calls the dynamic linker, so that it can
// be used inside a dl_iterate_phdr callback, under the linker's lock. Thread: any; allocation: none. Failure:
// an object that lacks the tables has no symbols and no relocations.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpuprobe::injector::nccl {

// The one place where addresses become pointers.
template <typename Pointee>
Pointee* PointerTo(uintptr_t address) noexcept {
  return reinterpret_cast<Pointee*>(address);  // NOLINT(performance-no-int-to-ptr)
}

class ElfObject {
 public:
  // Valid as long as the object stays loaded, which the callback of dl_iterate_phdr guarantees.
  explicit ElfObject(const dl_phdr_info& info) noexcept;

  std::string_view FileName() const noexcept {
    return file_name_;
  }  // without folders; empty for the program itself
  uintptr_t Base() const noexcept { return base_; }

  // True when `address` lies in one of the object's segments.
  bool Contains(uintptr_t address) const noexcept;
  // True when the segment of `address` is writable by its flags (RELRO aside).
  bool InWritableSegment(uintptr_t address) const noexcept;
  // True when `address` is in memory that the loader makes read-only after relocation.
  bool InRelro(uintptr_t address) const noexcept { return address >= relro_start_ && address < relro_end_; }

  // Address of the function or object that this object defines under `name`, null if it does not.
  void* FindSymbol(const char* name) const noexcept;

  // Calls visit(slot, symbol name, relocation type) for each JUMP_SLOT, GLOB_DAT and 64 relocation against a
  // named symbol without addend.
  template <typename Visit>
  void ForEachSymbolRelocation(Visit visit) const noexcept {
    for (const Table& relocations : {rela_, jump_slots_}) {
      for (size_t i = 0; i < relocations.count; ++i) {
        const ElfW(Rela)& entry = relocations.entries[i];
        const uint32_t type = ELF64_R_TYPE(entry.r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
        const size_t symbol = ELF64_R_SYM(entry.r_info);
        if (symbol == 0 || entry.r_addend != 0) continue;
        const size_t name = symbols_[symbol].st_name;
        if (name >= strings_bytes_) continue;
        visit(PointerTo<void*>(base_ + entry.r_offset), strings_ + name, type);
      }
    }
  }

 private:
  struct Table {
    const ElfW(Rela) * entries;
    size_t count;
  };

  void ReadDynamic(const ElfW(Dyn) * dynamic) noexcept;
  void* FindByGnuHash(const char* name) const noexcept;
  void* FindBySysvHash(const char* name) const noexcept;
  void* Defined(size_t symbol, const char* name) const noexcept;

  uintptr_t base_;
  const ElfW(Phdr) * headers_;
  size_t header_count_;
  std::string_view file_name_;
  uintptr_t relro_start_ = 0;
  uintptr_t relro_end_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  size_t strings_bytes_ = 0;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* sysv_hash_ = nullptr;
  Table rela_{nullptr, 0};
  Table jump_slots_{nullptr, 0};
};

// True for the object that this code is in.
bool IsOurself(const ElfObject& object) noexcept;

// The first loaded object, ourselves aside, that defines `name`: its address there, or null.
void* FindInLoadedObjects(const char* name) noexcept;

}  // namespace gpuprobe::injector::nccl
