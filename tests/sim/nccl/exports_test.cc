// What the library shows to the loader, held against the header and against the real library.

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/nccl/operations.h"

namespace gpusim::nccl {
namespace {

constexpr const char* kFunctions[] = {
#include "functions.inc"
};
// Functions of NCCL's device headers, which are there for PyTorch's loader alone (absent.cc).
constexpr size_t kOfDeviceHeaders = 2;

// The dynamic symbols of a file, and the functions that it calls through its own PLT.
struct Symbols {
  std::vector<std::string> weak;
  std::vector<std::string> strong;
  std::set<std::string> called;
  bool has_versions = false;
};

template <typename T>
const T* At(const std::string& file, uint64_t offset) {
  return reinterpret_cast<const T*>(file.data() + offset);
}

Symbols Read(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  Symbols result;
  const auto* header = At<ElfW(Ehdr)>(file, 0);
  const auto* sections = At<ElfW(Shdr)>(file, header->e_shoff);
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (size_t i = 0; i < header->e_shnum; ++i) {
    result.has_versions = result.has_versions || sections[i].sh_type == SHT_GNU_verdef;
    if (sections[i].sh_type != SHT_DYNSYM) {
      continue;
    }
    symbols = At<ElfW(Sym)>(file, sections[i].sh_offset);
    names = At<char>(file, sections[sections[i].sh_link].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof(ElfW(Sym)); ++s) {
      if (symbols[s].st_shndx != SHN_UNDEF && symbols[s].st_value != 0) {
        auto& list = ELF64_ST_BIND(symbols[s].st_info) == STB_WEAK ? result.weak : result.strong;
        list.emplace_back(names + symbols[s].st_name);
      }
    }
  }
  for (size_t i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_RELA) {
      continue;
    }
    const auto* relocations = At<ElfW(Rela)>(file, sections[i].sh_offset);
    for (size_t r = 0; r < sections[i].sh_size / sizeof(ElfW(Rela)); ++r) {
      if (ELF64_R_TYPE(relocations[r].r_info) == R_X86_64_JUMP_SLOT) {
        const std::string name = names + symbols[ELF64_R_SYM(relocations[r].r_info)].st_name;
        if (name.find("nccl") <= 1) {
          result.called.insert(name);
        }
      }
    }
  }
  return result;
}

TEST(NcclExportsTest, EveryFunctionOfTheHeaderIsThereUnderBothNames) {
  ASSERT_GE(std::size(kFunctions), 40U);
  void* library = dlopen(GPUSIM_NCCL, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const std::string function : kFunctions) {
    void* plain = dlsym(library, ("nccl" + function).c_str());
    EXPECT_NE(plain, nullptr) << "nccl" << function;
    EXPECT_EQ(plain, dlsym(library, ("pnccl" + function).c_str())) << "pnccl" << function;
  }
}

TEST(NcclExportsTest, PlainNamesAreWeakAndNothingElseIsShown) {
  const Symbols symbols = Read(GPUSIM_NCCL);
  EXPECT_FALSE(symbols.has_versions);
  EXPECT_EQ(symbols.weak.size(), std::size(kFunctions) + kOfDeviceHeaders);
  EXPECT_EQ(symbols.strong.size(), std::size(kFunctions) + kOfDeviceHeaders);
  EXPECT_THAT(symbols.weak, testing::Each(testing::StartsWith("nccl")));
  EXPECT_THAT(symbols.strong, testing::Each(testing::StartsWith("pnccl")));
}

TEST(NcclExportsTest, OnlyBroadcastIsCalledThroughThePlt) {
  EXPECT_THAT(Read(GPUSIM_NCCL).called, testing::ElementsAre("ncclBroadcast"));
}

TEST(NcclExportsTest, KernelNamesAreThoseOfTheRealLibrary) {
  const int file = open(GPUSIM_REAL_NCCL, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    GTEST_SKIP() << "the real libnccl.so.2 is not at \"" GPUSIM_REAL_NCCL "\": not compared";
  }
  struct stat status {};
  ASSERT_EQ(fstat(file, &status), 0);
  const auto size = static_cast<size_t>(status.st_size);
  void* image = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  ASSERT_NE(image, MAP_FAILED);
  std::set<std::string> names;
  for (int operation = 0; operation <= static_cast<int>(Operation::kRecv); ++operation) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      names.insert(KernelName(static_cast<Operation>(operation), static_cast<ncclDataType_t>(type)));
    }
  }
  EXPECT_EQ(names.size(), 30U) << "three reductions of nine types, and three without a type";
  for (const std::string& name : names) {
    EXPECT_NE(memmem(image, size, name.c_str(), name.size() + 1), nullptr) << name;
  }
  munmap(image, size);
}

}  // namespace
}  // namespace gpusim::nccl
