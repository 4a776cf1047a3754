// Binds the imports of a shared library to the C library's own functions. Runs when the library is linked.
// usage: bind_to_libc LIBRARY.so
//
// A C program may have functions of its own named send, connect, poll or stat: POSIX names are reserved only
// in programs that use POSIX. The dynamic linker finds the program's first, and accepts them for a reference
// to send@GLIBC_2.2.5, because a definition without a version counts as any version. Unless the reference
// says otherwise: bit 15 of vna_other ("hidden") of a needed version makes glibc accept only a definition of
// exactly this version (check_match in elf/dl-lookup.c; glibc has honoured the bit since 2.2). So this
// program sets it.
//
// Two versions are left alone: they hold threads and the loader (pthread_create, dlopen, dlsym ...), which
// tools such as ThreadSanitizer must see, and whose names no program takes by chance.
// tests/injector/exports_test.sh fails if something else comes to have such a version.
#include <elf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

constexpr Elf64_Half kOnlyThisVersion = 0x8000;
constexpr const char* kLeftAlone[] = {"GLIBC_2.32", "GLIBC_2.34"};

[[noreturn]] void Fail(const char* path, const char* what) {
  std::fprintf(stderr, "bind_to_libc: %s: %s\n", path, what);
  std::exit(1);
}

template <typename T>
T* At(std::string& file, size_t offset) {
  return reinterpret_cast<T*>(file.data() + offset);
}

bool IsBound(const char* version) {
  for (const char* left_alone : kLeftAlone) {
    if (std::strcmp(version, left_alone) == 0) return false;
  }
  return true;
}

// How many versions were changed.
int Bind(std::string& file, const Elf64_Shdr& needs, const Elf64_Shdr& strings) {
  int changed = 0;
  size_t at = needs.sh_offset;
  for (Elf64_Word i = 0; i < needs.sh_info; ++i) {
    const auto* library = At<Elf64_Verneed>(file, at);
    size_t version_at = at + library->vn_aux;
    for (Elf64_Half k = 0; k < library->vn_cnt; ++k) {
      auto* version = At<Elf64_Vernaux>(file, version_at);
      if (IsBound(At<char>(file, strings.sh_offset + version->vna_name))) {
        version->vna_other |= kOnlyThisVersion;
        ++changed;
      }
      version_at += version->vna_next;
    }
    at += library->vn_next;
  }
  return changed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) Fail("usage", "bind_to_libc LIBRARY.so");
  std::ifstream in(argv[1], std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (file.size() < sizeof(Elf64_Ehdr) || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0 ||
      file[EI_CLASS] != ELFCLASS64)
    Fail(argv[1], "not a 64-bit ELF file");
  const auto* header = At<Elf64_Ehdr>(file, 0);
  int changed = 0;
  for (int i = 0; i < header->e_shnum; ++i) {
    const auto* section = At<Elf64_Shdr>(file, header->e_shoff + sizeof(Elf64_Shdr) * static_cast<size_t>(i));
    if (section->sh_type != SHT_GNU_verneed) continue;
    const auto* strings = At<Elf64_Shdr>(file, header->e_shoff + sizeof(Elf64_Shdr) * section->sh_link);
    changed += Bind(file, *section, *strings);
  }
  if (changed == 0) Fail(argv[1], "no version of the C library is needed");
  std::ofstream out(argv[1], std::ios::binary | std::ios::in);
  if (!out.write(file.data(), static_cast<std::streamsize>(file.size())).flush())
    Fail(argv[1], "not written");
  return 0;
}
