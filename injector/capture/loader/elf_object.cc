#include "injector/capture/loader/elf_object.h"

#include <unistd.h>

#include <cstring>

namespace gpuprobe::injector::nccl {

namespace {

std::string_view BaseName(const char* path) noexcept {
  if (path == nullptr) return {};
  std::string_view name(path);
  const size_t slash = name.rfind('/');
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  return name;
}

uint32_t GnuHash(const char* name) noexcept {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

uint32_t SysvHash(const char* name) noexcept {
  uint32_t hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<unsigned char>(*name);
    const uint32_t high = hash & 0xf0000000u;
    hash ^= high >> 24;
    hash &= ~high;
  }
  return hash;
}

}  // namespace

ElfObject::ElfObject(const dl_phdr_info& info) noexcept
    : base_(info.dlpi_addr),
      headers_(info.dlpi_phdr),
      header_count_(info.dlpi_phnum),
      file_name_(BaseName(info.dlpi_name)) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const ElfW(Dyn)* dynamic = nullptr;
  for (size_t i = 0; i < header_count_; ++i) {
    const ElfW(Phdr)& header = headers_[i];
    if (header.p_type == PT_DYNAMIC) dynamic = PointerTo<const ElfW(Dyn)>(base_ + header.p_vaddr);
    if (header.p_type == PT_GNU_RELRO) {
      // Whole pages only, as the loader does it.
      relro_start_ = (base_ + header.p_vaddr) & ~(page - 1);
      relro_end_ = (base_ + header.p_vaddr + header.p_memsz) & ~(page - 1);
    }
  }
  if (dynamic != nullptr) ReadDynamic(dynamic);
}

void ElfObject::ReadDynamic(const ElfW(Dyn) * dynamic) noexcept {
  // glibc stores absolute addresses into the entries when it loads an object, but not into the vDSO's.
  const auto absolute = [this](ElfW(Addr) value) { return value < base_ ? value + base_ : value; };
  bool rela_plt = true;
  size_t relative_count = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) pointer = dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        symbols_ = PointerTo<const ElfW(Sym)>(absolute(pointer));
        break;
      case DT_STRTAB:
        strings_ = PointerTo<const char>(absolute(pointer));
        break;
      case DT_STRSZ:
        strings_bytes_ = dynamic->d_un.d_val;
        break;
      case DT_GNU_HASH:
        gnu_hash_ = PointerTo<const uint32_t>(absolute(pointer));
        break;
      case DT_HASH:
        sysv_hash_ = PointerTo<const uint32_t>(absolute(pointer));
        break;
      case DT_RELA:
        rela_.entries = PointerTo<const ElfW(Rela)>(absolute(pointer));
        break;
      case DT_RELASZ:
        rela_.count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELACOUNT:
        relative_count = dynamic->d_un.d_val;
        break;
      case DT_JMPREL:
        jump_slots_.entries = PointerTo<const ElfW(Rela)>(absolute(pointer));
        break;
      case DT_PLTRELSZ:
        jump_slots_.count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_PLTREL:
        rela_plt = dynamic->d_un.d_val == DT_RELA;
        break;
      default:
        break;
    }
  }
  // Relocations without a symbol come first, a million of them in a large library: their pages are not even
  // touched.
  if (rela_.entries != nullptr && relative_count <= rela_.count) {
    rela_.entries += relative_count;
    rela_.count -= relative_count;
  }
  if (rela_.entries == nullptr || symbols_ == nullptr || strings_ == nullptr) rela_ = {nullptr, 0};
  if (!rela_plt || jump_slots_.entries == nullptr || symbols_ == nullptr || strings_ == nullptr) {
    jump_slots_ = {nullptr, 0};
  }
}

bool ElfObject::Contains(uintptr_t address) const noexcept {
  for (size_t i = 0; i < header_count_; ++i) {
    const ElfW(Phdr)& header = headers_[i];
    const uintptr_t start = base_ + header.p_vaddr;
    if (header.p_type == PT_LOAD && address >= start && address < start + header.p_memsz) return true;
  }
  return false;
}

bool ElfObject::InWritableSegment(uintptr_t address) const noexcept {
  for (size_t i = 0; i < header_count_; ++i) {
    const ElfW(Phdr)& header = headers_[i];
    const uintptr_t start = base_ + header.p_vaddr;
    if (header.p_type == PT_LOAD && address >= start && address < start + header.p_memsz) {
      return (header.p_flags & PF_W) != 0;
    }
  }
  return false;
}

void* ElfObject::Defined(size_t symbol, const char* name) const noexcept {
  const ElfW(Sym)& entry = symbols_[symbol];
  if (entry.st_shndx == SHN_UNDEF || entry.st_value == 0 || entry.st_name >= strings_bytes_) return nullptr;
  if (std::strcmp(strings_ + entry.st_name, name) != 0) return nullptr;
  return PointerTo<void>(base_ + entry.st_value);
}

void* ElfObject::FindByGnuHash(const char* name) const noexcept {
  const uint32_t bucket_count = gnu_hash_[0];
  const uint32_t first_symbol = gnu_hash_[1];
  const uint32_t bloom_words = gnu_hash_[2];
  const uint32_t bloom_shift = gnu_hash_[3];
  if (bucket_count == 0 || bloom_words == 0) return nullptr;
  const auto* bloom = reinterpret_cast<const uint64_t*>(gnu_hash_ + 4);
  const auto* buckets = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
  const uint32_t* chain = buckets + bucket_count;
  const uint32_t hash = GnuHash(name);
  const uint64_t word = bloom[(hash / 64) % bloom_words];
  if (((word >> (hash % 64)) & (word >> ((hash >> bloom_shift) % 64)) & 1) == 0) return nullptr;
  uint32_t symbol = buckets[hash % bucket_count];
  if (symbol < first_symbol) return nullptr;
  for (;; ++symbol) {
    const uint32_t entry = chain[symbol - first_symbol];
    if ((entry | 1) == (hash | 1)) {
      if (void* found = Defined(symbol, name); found != nullptr) return found;
    }
    if ((entry & 1) != 0) return nullptr;
  }
}

void* ElfObject::FindBySysvHash(const char* name) const noexcept {
  const uint32_t bucket_count = sysv_hash_[0];
  const uint32_t chain_count = sysv_hash_[1];
  if (bucket_count == 0) return nullptr;
  const uint32_t* buckets = sysv_hash_ + 2;
  const uint32_t* chain = buckets + bucket_count;
  uint32_t steps = 0;
  for (uint32_t symbol = buckets[SysvHash(name) % bucket_count];
       symbol != 0 && symbol < chain_count && steps < chain_count; symbol = chain[symbol], ++steps) {
    if (void* found = Defined(symbol, name); found != nullptr) return found;
  }
  return nullptr;
}

void* ElfObject::FindSymbol(const char* name) const noexcept {
  if (symbols_ == nullptr || strings_ == nullptr) return nullptr;
  if (gnu_hash_ != nullptr) return FindByGnuHash(name);
  return sysv_hash_ != nullptr ? FindBySysvHash(name) : nullptr;
}

bool IsOurself(const ElfObject& object) noexcept {
  return object.Contains(reinterpret_cast<uintptr_t>(&IsOurself));
}

void* FindInLoadedObjects(const char* name) noexcept {
  struct Search {
    const char* name;
    void* found;
  } search{name, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) noexcept {
        auto* wanted = static_cast<Search*>(data);
        const ElfObject object(*info);
        if (!IsOurself(object)) wanted->found = object.FindSymbol(wanted->name);
        return wanted->found != nullptr ? 1 : 0;
      },
      &search);
  return search.found;
}

}  // namespace gpuprobe::injector::nccl
