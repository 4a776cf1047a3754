#include "injector/capture/loader/elf_object.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "injector/base/loaded_objects.h"

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

constinit ReadableMemory ElfObject::memory;

ElfObject::ElfObject(const dl_phdr_info& info) noexcept
    : base_(info.dlpi_addr), file_name_(BaseName(info.dlpi_name)) {
  memory.Forget();
  ReadHeaders(info);
  if (dynamic_.begin != 0) ReadDynamic();
}

void ElfObject::ReadHeaders(const dl_phdr_info& info) noexcept {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto at = reinterpret_cast<uintptr_t>(info.dlpi_phdr);
  const uintptr_t headers_end = at + info.dlpi_phnum * sizeof(ElfW(Phdr));
  for (; at < headers_end; at += sizeof(ElfW(Phdr))) {
    ElfW(Phdr) header;
    if (!memory.Get(at, &header)) return;
    const uintptr_t begin = base_ + header.p_vaddr;
    const uintptr_t end = begin + header.p_memsz;
    if (header.p_type == PT_DYNAMIC) dynamic_ = {begin, end};
    if (header.p_type == PT_LOAD && segment_count_ < kMostSegments) {
      segments_[segment_count_++] = {begin, end, header.p_flags};
      memory.AddSegment(begin, end);
    }
    if (header.p_type == PT_GNU_RELRO) {
      // Whole pages only, as the loader does it.
      relro_start_ = begin & ~(page - 1);
      relro_end_ = end & ~(page - 1);
    }
  }
}

void ElfObject::ReadDynamic() noexcept {
  // glibc stores absolute addresses into the entries when it loads an object, but not into the vDSO's.
  const auto absolute = [this](ElfW(Addr) value) { return value < base_ ? value + base_ : value; };
  bool rela_plt = true;
  size_t relative_count = 0;
  size_t rela_count = 0;
  size_t slot_count = 0;
  size_t strings_bytes = 0;
  ElfW(Dyn) entry{};
  for (uintptr_t at = dynamic_.begin; at < dynamic_.end && memory.Get(at, &entry) && entry.d_tag != DT_NULL;
       at += sizeof(entry)) {
    const ElfW(Addr) pointer = entry.d_un.d_ptr;
    switch (entry.d_tag) {
      case DT_SYMTAB:
        symbols_ = absolute(pointer);
        break;
      case DT_STRTAB:
        strings_.begin = absolute(pointer);
        break;
      case DT_STRSZ:
        strings_bytes = entry.d_un.d_val;
        break;
      case DT_SONAME:
        so_name_ = entry.d_un.d_val;
        break;
      case DT_INIT:
        init_ = base_ + pointer;  // the one that the loader leaves as it is
        break;
      case DT_GNU_HASH:
        gnu_hash_ = absolute(pointer);
        break;
      case DT_HASH:
        sysv_hash_ = absolute(pointer);
        break;
      case DT_RELA:
        rela_.begin = absolute(pointer);
        break;
      case DT_RELASZ:
        rela_count = entry.d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELACOUNT:
        relative_count = entry.d_un.d_val;
        break;
      case DT_JMPREL:
        jump_slots_.begin = absolute(pointer);
        break;
      case DT_PLTRELSZ:
        slot_count = entry.d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_PLTREL:
        rela_plt = entry.d_un.d_val == DT_RELA;
        break;
      default:
        break;
    }
  }
  const bool named = symbols_ != 0 && strings_.begin != 0;
  strings_.end = strings_.begin + strings_bytes;
  jump_slots_.end = jump_slots_.begin + slot_count * sizeof(ElfW(Rela));
  rela_.end = rela_.begin + rela_count * sizeof(ElfW(Rela));
  // Relocations without a symbol come first, a million of them in a large library: their pages are not even
  // touched.
  if (relative_count <= rela_count) rela_.begin += relative_count * sizeof(ElfW(Rela));
  if (rela_count == 0 || !named) rela_ = {0, 0};
  if (!rela_plt || jump_slots_.begin == 0 || !named) jump_slots_ = {0, 0};
}

const char* ElfObject::SoName() const noexcept {
  return so_name_ == 0 ? nullptr : memory.Text(strings_.begin + so_name_, strings_.end);
}

bool ElfObject::Needs(std::string_view so_name) const noexcept {
  ElfW(Dyn) entry{};
  for (uintptr_t at = dynamic_.begin; at < dynamic_.end && memory.Get(at, &entry) && entry.d_tag != DT_NULL;
       at += sizeof(entry)) {
    if (entry.d_tag != DT_NEEDED) continue;
    const char* needed = memory.Text(strings_.begin + entry.d_un.d_val, strings_.end);
    if (needed != nullptr && so_name == needed) return true;
  }
  return false;
}

const char* ElfObject::NameOf(size_t symbol) const noexcept {
  ElfW(Sym) entry;
  if (symbol == 0 || !memory.Get(AddressOfSymbol(symbol), &entry)) return nullptr;
  return memory.Text(strings_.begin + entry.st_name, strings_.end);
}

const ElfObject::Segment* ElfObject::SegmentOf(uintptr_t address) const noexcept {
  const Segment* const found = std::find_if(
      segments_, segments_ + segment_count_,
      [address](const Segment& segment) { return address >= segment.begin && address < segment.end; });
  return found == segments_ + segment_count_ ? nullptr : found;
}

bool ElfObject::Contains(uintptr_t address) const noexcept { return SegmentOf(address) != nullptr; }

bool ElfObject::InWritableSegment(uintptr_t address) const noexcept {
  const Segment* segment = SegmentOf(address);
  return segment != nullptr && (segment->flags & PF_W) != 0;
}

bool ElfObject::InExecutableSegment(uintptr_t address) const noexcept {
  const Segment* segment = SegmentOf(address);
  return segment != nullptr && (segment->flags & PF_X) != 0;
}

bool ElfObject::Defines(size_t symbol, const char* name) const noexcept {
  ElfW(Sym) entry;
  if (!memory.Get(AddressOfSymbol(symbol), &entry)) return false;
  if (entry.st_shndx == SHN_UNDEF || entry.st_value == 0) return false;
  const char* found = memory.Text(strings_.begin + entry.st_name, strings_.end);
  return found != nullptr && std::strcmp(found, name) == 0;
}

size_t ElfObject::FindByGnuHash(const char* name) const noexcept {
  struct {
    uint32_t bucket_count;
    uint32_t first_symbol;
    uint32_t bloom_words;
    uint32_t bloom_shift;
  } table;
  if (!memory.Get(gnu_hash_, &table) || table.bucket_count == 0 || table.bloom_words == 0) return 0;
  const uintptr_t bloom = gnu_hash_ + sizeof(table);
  const uintptr_t buckets = bloom + table.bloom_words * sizeof(uint64_t);
  const uintptr_t chain = buckets + table.bucket_count * sizeof(uint32_t);
  const uint32_t hash = GnuHash(name);
  uint64_t word = 0;
  if (!memory.Get(bloom + (hash / 64) % table.bloom_words * sizeof(word), &word)) return 0;
  if (((word >> (hash % 64)) & (word >> ((hash >> table.bloom_shift) % 64)) & 1) == 0) return 0;
  uint32_t symbol = 0;
  if (!memory.Get(buckets + hash % table.bucket_count * sizeof(symbol), &symbol)) return 0;
  if (symbol < table.first_symbol) return 0;
  uint32_t entry = 0;
  for (; (entry & 1) == 0; ++symbol) {
    if (!memory.Get(chain + (symbol - table.first_symbol) * sizeof(entry), &entry)) return 0;
    if ((entry | 1) == (hash | 1) && Defines(symbol, name)) return symbol;
  }
  return 0;
}

size_t ElfObject::FindBySysvHash(const char* name) const noexcept {
  struct {
    uint32_t bucket_count;
    uint32_t chain_count;
  } table;
  if (!memory.Get(sysv_hash_, &table) || table.bucket_count == 0) return 0;
  const uintptr_t buckets = sysv_hash_ + sizeof(table);
  const uintptr_t chain = buckets + table.bucket_count * sizeof(uint32_t);
  uint32_t symbol = 0;
  uintptr_t next = buckets + SysvHash(name) % table.bucket_count * sizeof(symbol);
  for (uint32_t steps = 0; steps < table.chain_count; ++steps, next = chain + symbol * sizeof(symbol)) {
    if (!memory.Get(next, &symbol) || symbol == 0 || symbol >= table.chain_count) return 0;
    if (Defines(symbol, name)) return symbol;
  }
  return 0;
}

size_t ElfObject::FindNumber(const char* name) const noexcept {
  if (symbols_ == 0 || strings_.begin == 0) return 0;
  if (gnu_hash_ != 0) return FindByGnuHash(name);
  return sysv_hash_ != 0 ? FindBySysvHash(name) : 0;
}

void* ElfObject::FindSymbol(const char* name) const noexcept {
  const size_t symbol = FindNumber(name);
  ElfW(Sym) entry;
  if (symbol == 0 || !memory.Get(AddressOfSymbol(symbol), &entry)) return nullptr;
  return PointerTo<void>(base_ + entry.st_value);
}

uintptr_t ElfObject::FindSymbolValue(const char* name) const noexcept {
  const size_t symbol = FindNumber(name);
  return symbol == 0 ? 0 : AddressOfSymbol(symbol) + offsetof(ElfW(Sym), st_value);
}

bool IsOurself(const ElfObject& object) noexcept {
  return object.Contains(reinterpret_cast<uintptr_t>(&IsOurself));
}

void* FindInLoadedObjects(const char* name) noexcept {
  struct Search {
    const char* name;
    void* found;
  } search{name, nullptr};
  AlwaysVisitLoadedObjects(
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
