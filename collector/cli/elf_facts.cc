#include "collector/cli/elf_facts.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

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
    if (entry.d_tag != DT_NEEDED || facts->libraries.size() == kMostHeaders) continue;
    facts->libraries.push_back(ReadText(fd, *names + (entry.d_un.d_val & UINT32_MAX), 256));
  }
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
  if (!ReadAt(fd, 0, &header, sizeof header)) return std::nullopt;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMostHeaders) return std::nullopt;
  std::vector<Elf64_Phdr> headers(header.e_phnum);
  if (!headers.empty() && !ReadAt(fd, header.e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr))) {
    return std::nullopt;
  }
  for (const Elf64_Phdr& part : headers) {
    if (part.p_type == PT_INTERP) facts.interpreter = ReadText(fd, part.p_offset, part.p_filesz);
    if (part.p_type == PT_DYNAMIC && facts.libraries.empty()) ReadLibraries(fd, part, headers, &facts);
  }
  return facts;
}

}  // namespace gpuprobe::cli
