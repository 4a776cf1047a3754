#include "collector/cli/elf_facts.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gpuprobe::cli {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
constexpr size_t kMostHeaders = 512;
constexpr size_t kMostDynamicBytes = size_t{1} << 20;
constexpr size_t kLongestText = 4096;
constexpr size_t kMostSymbolBytes = size_t{64} << 20;

// False unless all of it is in the file.
bool ReadAt(int fd, uint64_t offset, void* into, size_t bytes) {
  if (offset > static_cast<uint64_t>(INT64_MAX) - bytes) return false;
  return pread(fd, into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// Up to the first NUL or `most`.
std::string ReadText(int fd, uint64_t offset, size_t most) {
  std::string text(std::min(most, kLongestText), '\0');
  if (offset > static_cast<uint64_t>(INT64_MAX) - text.size()) return {};
  const ssize_t n = pread(fd, text.data(), text.size(), static_cast<off_t>(offset));
  if (n <= 0) return {};
  text.resize(static_cast<size_t>(n));
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::optional<uint64_t> OffsetOfAddress(const std::vector<Elf64_Phdr>& headers, uint64_t address) {
  for (const Elf64_Phdr& header : headers) {
    if (header.p_type != PT_LOAD || address < header.p_vaddr) continue;
    if (address - header.p_vaddr < header.p_filesz) return header.p_offset + (address - header.p_vaddr);
  }
  return std::nullopt;
}

void ReadLibraries(int fd, const Elf64_Phdr& dynamic, const std::vector<Elf64_Phdr>& headers,
                   ElfFacts* facts) {
  std::vector<Elf64_Dyn> entries(std::min<uint64_t>(dynamic.p_filesz, kMostDynamicBytes) / sizeof(Elf64_Dyn));
  if (entries.empty() || !ReadAt(fd, dynamic.p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) {
    return;
  }
  entries.erase(
      std::find_if(entries.begin(), entries.end(), [](const auto& e) { return e.d_tag == DT_NULL; }),
      entries.end());
  const auto table =
      std::find_if(entries.begin(), entries.end(), [](const auto& e) { return e.d_tag == DT_STRTAB; });
  if (table == entries.end()) return;
  const std::optional<uint64_t> names = OffsetOfAddress(headers, table->d_un.d_ptr);
  if (!names.has_value()) return;
  for (const Elf64_Dyn& entry : entries) {
    const uint64_t at = *names + (entry.d_un.d_val & UINT32_MAX);
    if (entry.d_tag == DT_NEEDED && facts->libraries.size() < kMostHeaders)
      facts->libraries.push_back(ReadText(fd, at, 256));
    if (entry.d_tag == DT_RUNPATH || (entry.d_tag == DT_RPATH && facts->search_path.empty()))
      facts->search_path = ReadText(fd, at, kLongestText);
  }
}

std::optional<std::vector<Elf64_Phdr>> ReadHeaders(int fd, Elf64_Ehdr* header) {
  if (!ReadAt(fd, 0, header, sizeof *header) || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > kMostHeaders)
    return std::nullopt;
  std::vector<Elf64_Phdr> headers(header->e_phnum);
  if (!headers.empty() && !ReadAt(fd, header->e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr)))
    return std::nullopt;
  return headers;
}

template <typename T>
std::vector<T> ReadTable(int fd, const Elf64_Shdr& section) {
  std::vector<T> table(std::min<uint64_t>(section.sh_size, kMostSymbolBytes) / sizeof(T));
  if (table.empty() || !ReadAt(fd, section.sh_offset, table.data(), table.size() * sizeof(T))) return {};
  return table;
}

}  // namespace

std::optional<ElfFacts> ReadElfFacts(int fd) {
  Elf64_Ehdr header{};
  // The first 20 bytes are the same in both classes.
  constexpr size_t kCommon = offsetof(Elf64_Ehdr, e_version);
  if (!ReadAt(fd, 0, &header, kCommon) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return std::nullopt;
  }
  ElfFacts facts;
  facts.same_architecture = header.e_ident[EI_CLASS] == ELFCLASS64 &&
                            header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_machine == kMachine;
  if (!facts.same_architecture) return facts;
  const std::optional<std::vector<Elf64_Phdr>> headers = ReadHeaders(fd, &header);
  if (!headers.has_value()) return std::nullopt;
  for (const Elf64_Phdr& part : *headers) {
    if (part.p_type == PT_INTERP) facts.interpreter = ReadText(fd, part.p_offset, part.p_filesz);
    if (part.p_type == PT_DYNAMIC && facts.libraries.empty()) ReadLibraries(fd, part, *headers, &facts);
  }
  return facts;
}

std::map<std::string, uint64_t> FindSymbols(int fd, const std::vector<std::string>& names) {
  std::map<std::string, uint64_t> found;
  Elf64_Ehdr header{};
  const std::optional<std::vector<Elf64_Phdr>> parts = ReadHeaders(fd, &header);
  if (!parts.has_value() || header.e_shentsize != sizeof(Elf64_Shdr)) return found;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (sections.empty() || !ReadAt(fd, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr)))
    return found;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM && section.sh_type != SHT_SYMTAB) continue;
    if (section.sh_link >= sections.size()) continue;
    std::vector<char> texts = ReadTable<char>(fd, sections[section.sh_link]);
    texts.push_back('\0');
    for (const Elf64_Sym& symbol : ReadTable<Elf64_Sym>(fd, section)) {
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= texts.size()) continue;
      const std::string_view text = texts.data() + symbol.st_name;
      if (std::find(names.begin(), names.end(), text) == names.end()) continue;
      const std::optional<uint64_t> at = OffsetOfAddress(*parts, symbol.st_value);
      if (at.has_value()) found.emplace(text, *at);
    }
  }
  return found;
}

}  // namespace gpuprobe::cli
