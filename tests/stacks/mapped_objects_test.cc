#include "stacks/mapped_objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace gpuprobe::stacks {
namespace {

uint64_t AddressOf(const void* p) { return reinterpret_cast<uint64_t>(p); }

TEST(MappedObjects, FindsWhatLibcExports) {
  Dl_info info;
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "getpid"), &info), 0);
  const ProcessMemory memory(getpid());
  EXPECT_EQ(FindExported(memory, AddressOf(info.dli_fbase), "getpid"),
            AddressOf(dlsym(RTLD_DEFAULT, "getpid")));
  EXPECT_EQ(FindExported(memory, AddressOf(info.dli_fbase), "no_libc_has_this"), 0U);
}

TEST(MappedObjects, ListsTheMappingOfAnAddress) {
  Mappings mappings(getpid());
  Mapping mapping;
  std::string path;
  while (mappings.Next(mapping)) {
    const uint64_t address = AddressOf(dlsym(RTLD_DEFAULT, "getpid"));
    if (address < mapping.begin || address >= mapping.end) continue;
    path = mapping.path;
    EXPECT_FALSE(mapping.writable);
  }
  EXPECT_NE(path.find("libc"), std::string::npos) << path;
}

TEST(MappedObjects, AnEndedProcessHasNone) {
  Mapping mapping;
  Mappings mappings(0x7fffffff);
  EXPECT_FALSE(mappings.opened());
  EXPECT_FALSE(mappings.Next(mapping));
}

TEST(MappedObjects, DamagedObjectsExportNothing) {
  constexpr size_t kSize = 4096;
  std::vector<unsigned char> object(kSize);
  const ProcessMemory memory(getpid());
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    for (unsigned char& byte : object) byte = random() % 4 == 0 ? static_cast<unsigned char>(random()) : 0;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = static_cast<Elf64_Half>(random());
    header.e_phoff = random() % 512;
    std::memcpy(object.data(), &header, sizeof header);
    EXPECT_EQ(FindExported(memory, AddressOf(object.data()), "_PyRuntime"), 0U);
  }
}

TEST(ProcessMemory, ReadsUpToWhatIsMapped) {
  const auto page = static_cast<size_t>(getpagesize());
  char* const pages =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(munmap(pages + page, page), 0);
  const ProcessMemory memory(getpid());
  std::vector<char> to(page);
  EXPECT_FALSE(memory.Read(AddressOf(pages + page - 8), to.data(), 16));
  EXPECT_EQ(memory.ReadSome(AddressOf(pages + page - 8), to.data(), 16), 8U);
  EXPECT_FALSE(memory.Read(0, to.data(), 8));
  EXPECT_EQ(memory.refused(), 0);
  munmap(pages, page);
}

}  // namespace
}  // namespace gpuprobe::stacks
