#include "stacks/mapped_objects.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "stacks/proc_path.h"

namespace gpuprobe::stacks {
namespace {

// Bounds on what a damaged or hostile object may say.
constexpr int kMostProgramHeaders = 128;
constexpr int kMostDynamicEntries = 512;
constexpr int kMostSymbolsInBucket = 4096;

uint64_t TakeHex(std::string_view& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.empty()) text.remove_prefix(1);
  return value;
}

// "7f0000000000-7f0000001000 rw-p 00001000 08:01 1234    /usr/lib/libx.so"
Mapping ParseMapping(std::string_view line) {
  Mapping mapping;
  mapping.begin = TakeHex(line);
  mapping.end = TakeHex(line);
  mapping.writable = line.size() > 1 && line[1] == 'w';
  mapping.executable = line.size() > 2 && line[2] == 'x';
  line.remove_prefix(std::min<size_t>(line.size(), 5));
  mapping.offset = TakeHex(line);
  for (int field = 0; field < 2; ++field) {  // device and inode
    const size_t space = line.find(' ');
    line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  }
  const size_t path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) mapping.path = {line.data() + path, line.size() - path};
  return mapping;
}

uint32_t GnuHash(std::string_view name) {
  uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

struct DynamicTables {
  uint64_t symbols = 0;
  uint64_t strings = 0;
  uint64_t gnu_hash = 0;
};

bool FindTables(const ProcessMemory& memory, uint64_t base, uint64_t& bias, DynamicTables& tables) {
  Elf64_Ehdr header;
  if (!memory.Read(base, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  uint64_t dynamic = 0;
  bool loads = false;
  for (int i = 0; i < std::min<int>(header.e_phnum, kMostProgramHeaders); ++i) {
    Elf64_Phdr part;
    if (!memory.Read(base + header.e_phoff + static_cast<uint64_t>(i) * sizeof part, part)) return false;
    if (part.p_type == PT_LOAD && part.p_offset == 0) {
      bias = base - part.p_vaddr;
      loads = true;
    }
    if (part.p_type == PT_DYNAMIC) dynamic = part.p_vaddr;
  }
  if (!loads || dynamic == 0) return false;
  // The loader has turned addresses in the dynamic section into absolute ones, except in objects that it
  // could not write to.
  const auto absolute = [&](uint64_t value) { return value < bias ? value + bias : value; };
  for (int i = 0; i < kMostDynamicEntries; ++i) {
    Elf64_Dyn entry;
    if (!memory.Read(bias + dynamic + static_cast<uint64_t>(i) * sizeof entry, entry)) return false;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) tables.symbols = absolute(entry.d_un.d_ptr);
    if (entry.d_tag == DT_STRTAB) tables.strings = absolute(entry.d_un.d_ptr);
    if (entry.d_tag == DT_GNU_HASH) tables.gnu_hash = absolute(entry.d_un.d_ptr);
  }
  return tables.symbols != 0 && tables.strings != 0 && tables.gnu_hash != 0;
}

bool IsNamed(const ProcessMemory& memory, uint64_t address, std::string_view name) {
  char text[64];
  return name.size() < sizeof text && memory.Read(address, text, name.size() + 1) &&
         text[name.size()] == '\0' && std::string_view(text, name.size()) == name;
}

}  // namespace

Mappings::Mappings(pid_t pid) { file_ = open(ProcPath(pid, "/maps").c_str(), O_RDONLY | O_CLOEXEC); }

Mappings::~Mappings() {
  if (file_ >= 0) close(file_);
}

bool Mappings::NextLine(std::string_view& line) {
  while (true) {
    const char* const from = buffer_ + begin_;
    const void* const newline = std::memchr(from, '\n', end_ - begin_);
    if (newline != nullptr) {
      const auto size = static_cast<size_t>(static_cast<const char*>(newline) - from);
      begin_ += size + 1;
      if (skipping_) {
        skipping_ = false;
        continue;
      }
      line = std::string_view(from, size);
      return true;
    }
    if (begin_ == 0 && end_ == sizeof buffer_) {
      skipping_ = true;
      end_ = 0;
    }
    std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const ssize_t n = file_ < 0 ? 0 : read(file_, buffer_ + end_, sizeof buffer_ - end_);
    if (n <= 0) return false;
    end_ += static_cast<size_t>(n);
  }
}

bool Mappings::Next(Mapping& mapping) {
  std::string_view line;
  if (!NextLine(line)) return false;
  mapping = ParseMapping(line);
  return true;
}

uint64_t FindExported(const ProcessMemory& memory, uint64_t base, std::string_view name) {
  uint64_t bias = 0;
  DynamicTables tables;
  if (!FindTables(memory, base, bias, tables)) return 0;
  struct {
    uint32_t buckets, first_symbol, bloom_words, bloom_shift;
  } header;
  if (!memory.Read(tables.gnu_hash, header) || header.buckets == 0) return 0;
  const uint32_t hash = GnuHash(name);
  const uint64_t buckets = tables.gnu_hash + sizeof header + uint64_t{header.bloom_words} * 8;
  const uint64_t chains = buckets + uint64_t{header.buckets} * 4;
  uint32_t index = 0;
  if (!memory.Read(buckets + uint64_t{hash % header.buckets} * 4, index) || index < header.first_symbol)
    return 0;
  for (int i = 0; i < kMostSymbolsInBucket; ++i, ++index) {
    uint32_t other = 0;
    if (!memory.Read(chains + uint64_t{index - header.first_symbol} * 4, other)) return 0;
    if ((other | 1) == (hash | 1)) {
      Elf64_Sym symbol;
      if (!memory.Read(tables.symbols + uint64_t{index} * sizeof symbol, symbol)) return 0;
      if (symbol.st_shndx != SHN_UNDEF && IsNamed(memory, tables.strings + symbol.st_name, name)) {
        return bias + symbol.st_value;
      }
    }
    if ((other & 1) != 0) return 0;
  }
  return 0;
}

}  // namespace gpuprobe::stacks
