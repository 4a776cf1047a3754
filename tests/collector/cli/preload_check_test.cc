// What stands in the way of preloading, and the ELF reader below it, on images made here: whatever is in the
// file, the answer is bounded and nothing crashes.
#include "collector/cli/preload_check.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "collector/cli/elf_facts.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::cli {
namespace {

using gpuprobe::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr uint16_t kOtherMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_X86_64;
constexpr uint16_t kOtherMachine = EM_AARCH64;
#endif
constexpr char kGlibc[] = "/lib64/ld-linux-x86-64.so.2";

struct Image {
  uint16_t type = ET_DYN;  // position-independent; ET_EXEC is not
  uint16_t machine = kMachine;
  uint8_t elf_class = ELFCLASS64;
  std::string interpreter = kGlibc;
  std::vector<std::string> libraries = {};
  uint64_t base = 0;  // where the file begins in memory
};

template <typename T>
void Put(std::string& bytes, size_t at, const T& value) {
  bytes.replace(at, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
}

// One loaded part that is the whole file, as a linker would write it: headers, interpreter, names, dynamic.
std::string Bytes(const Image& image) {
  std::string names(1, '\0');
  std::vector<Elf64_Dyn> dynamic;
  for (const std::string& library : image.libraries) {
    dynamic.push_back({DT_NEEDED, {names.size()}});
    names += library + '\0';
  }
  constexpr size_t kInterpreterAt = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
  const size_t names_at = kInterpreterAt + image.interpreter.size() + 1;
  const size_t dynamic_at = (names_at + names.size() + 7) / 8 * 8;
  dynamic.push_back({DT_STRTAB, {image.base + names_at}});
  dynamic.push_back({DT_NULL, {0}});
  const bool is_static = image.interpreter.empty();
  std::string bytes(dynamic_at + dynamic.size() * sizeof(Elf64_Dyn), '\0');
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = image.elf_class;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = image.type;
  header.e_machine = image.machine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = is_static ? 1 : 3;
  Put(bytes, 0, header);
  const auto part = [&](size_t index, uint32_t type, uint64_t at, uint64_t size) {
    Elf64_Phdr entry{};
    entry.p_type = type;
    entry.p_offset = at;
    entry.p_vaddr = image.base + at;
    entry.p_filesz = entry.p_memsz = size;
    Put(bytes, sizeof header + index * sizeof entry, entry);
  };
  part(0, PT_LOAD, 0, bytes.size());
  if (is_static) return bytes;
  part(1, PT_INTERP, kInterpreterAt, image.interpreter.size() + 1);
  part(2, PT_DYNAMIC, dynamic_at, dynamic.size() * sizeof(Elf64_Dyn));
  bytes.replace(kInterpreterAt, image.interpreter.size(), image.interpreter);
  bytes.replace(names_at, names.size(), names);
  for (size_t i = 0; i < dynamic.size(); ++i) Put(bytes, dynamic_at + i * sizeof(Elf64_Dyn), dynamic[i]);
  return bytes;
}

// A file without a name, to be changed at will.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : fd_(memfd_create("elf", MFD_CLOEXEC)) { Write(0, bytes); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void Write(size_t at, const std::string& bytes) {
    ASSERT_EQ(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }
  void Cut(size_t size) { ASSERT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0); }
  std::optional<ElfFacts> Facts() const { return ReadElfFacts(fd_); }

 private:
  int fd_;
};

void ExpectBounded(const std::optional<ElfFacts>& facts) {
  if (!facts.has_value()) return;
  EXPECT_LE(facts->interpreter.size(), 4096u);
  EXPECT_LE(facts->libraries.size(), 512u);
  for (const std::string& library : facts->libraries) EXPECT_LE(library.size(), 256u);
}

std::string OwnBytes() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST(ElfFacts, NamesInterpreterAndLibrariesOfBothKindsOfPrograms) {
  for (const uint16_t type : {ET_DYN, ET_EXEC}) {
    Image image{.type = type, .libraries = {"libc.so.6", "libm.so.6"}};
    if (type == ET_EXEC) image.base = 0x400000;
    const auto facts = MemoryFile(Bytes(image)).Facts();
    ASSERT_TRUE(facts.has_value());
    EXPECT_TRUE(facts->same_architecture);
    EXPECT_EQ(facts->interpreter, kGlibc);
    EXPECT_THAT(facts->libraries, ElementsAre("libc.so.6", "libm.so.6"));
  }
}

TEST(ElfFacts, AStaticProgramHasNeither) {
  const auto facts = MemoryFile(Bytes({.type = ET_EXEC, .interpreter = ""})).Facts();
  ASSERT_TRUE(facts.has_value());
  EXPECT_TRUE(facts->same_architecture);
  EXPECT_EQ(facts->interpreter, "");
  EXPECT_TRUE(facts->libraries.empty());
}

TEST(ElfFacts, OfOtherMachinesNothingElseIsRead) {
  for (const Image& image : {Image{.machine = kOtherMachine, .libraries = {"libc.so.6"}},
                             Image{.machine = EM_386, .elf_class = ELFCLASS32, .libraries = {"libc.so.6"}},
                             Image{.elf_class = ELFCLASS32}}) {
    const auto facts = MemoryFile(Bytes(image)).Facts();
    ASSERT_TRUE(facts.has_value());
    EXPECT_FALSE(facts->same_architecture);
    EXPECT_TRUE(facts->interpreter.empty() && facts->libraries.empty());
  }
}

TEST(ElfFacts, ThisProgramNamesWhatItIsLinkedWith) {
  const auto facts = MemoryFile(OwnBytes()).Facts();
  ASSERT_TRUE(facts.has_value());
  EXPECT_THAT(facts->interpreter, HasSubstr("ld-"));
  EXPECT_THAT(facts->libraries, ::testing::Contains(HasSubstr("libc.")));
}

TEST(ElfFacts, AFileThatIsCutAnywhereIsBounded) {
  const std::string own = OwnBytes();
  const std::string made = Bytes({.libraries = {"liba.so", "libb.so"}});
  for (const std::string& bytes : {own, made}) {
    MemoryFile file(bytes);
    const size_t step = bytes.size() / 2000 + 1;
    for (size_t size = bytes.size(); size > 4096; size -= std::min(size, step)) {
      file.Cut(size);
      ExpectBounded(file.Facts());
    }
    for (size_t size = std::min<size_t>(bytes.size(), 4096); size > 0; --size) {
      file.Cut(size - 1);
      ExpectBounded(file.Facts());
    }
    EXPECT_FALSE(file.Facts().has_value()) << "nothing is left";
  }
}

// Where a reader looks: the head of the file, and its dynamic part.
TEST(ElfFacts, AFileWithWrongBytesIsBounded) {
  std::mt19937_64 random(1);
  const std::string own = OwnBytes();
  const std::string made = Bytes({.libraries = {"liba.so", "libb.so", "libc.so.6"}});
  for (const std::string& bytes : {own, made}) {
    MemoryFile file(bytes);
    const size_t head = std::min<size_t>(bytes.size(), 1024);
    for (int turn = 0; turn < 10'000; ++turn) {
      constexpr uint64_t kOdd[] = {0, 1, 8, 0x7fff'ffff, 0xffff'ffff, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
      const size_t width = size_t{1} << (random() % 4);
      const size_t at = random() % (turn % 4 == 3 ? bytes.size() : head);
      const uint64_t value = turn % 2 == 0 ? random() : kOdd[random() % std::size(kOdd)];
      const size_t room = std::min(width, bytes.size() - at);
      file.Write(at, std::string(reinterpret_cast<const char*>(&value), room));
      ExpectBounded(file.Facts());
      if (turn % 8 == 7) file.Write(0, bytes.substr(0, head));  // up to eight changes at once
      if (at >= head) file.Write(at, bytes.substr(at, room));
    }
  }
}

TEST(ElfFacts, CountsThatLieAreNotBelieved) {
  std::vector<std::string> many(600, "libx.so");
  const auto facts = MemoryFile(Bytes({.libraries = many})).Facts();
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->libraries.size(), 512u);
  const auto text = MemoryFile(Bytes({.interpreter = std::string(9000, 'x')})).Facts();
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->interpreter.size(), 4096u);
}

class PreloadCheckTest : public ::testing::Test {
 protected:
  std::string Program(const std::string& name, const std::string& bytes, mode_t mode = 0755) {
    std::string path = dir_.File(name);
    std::ofstream(path, std::ios::binary) << bytes;
    chmod(path.c_str(), mode);
    return path;
  }

  TempDir dir_;
};

TEST_F(PreloadCheckTest, OrdinaryProgramsHaveNoObstacle) {
  // The runtime of CUDA may be linked statically: then it is no library of the program's.
  for (const Image& image :
       {Image{.libraries = {"libcudart.so.12", "libc.so.6"}}, Image{.libraries = {"libc.so.6"}},
        Image{.type = ET_EXEC, .libraries = {"libc.so.6"}, .base = 0x400000}, Image{.interpreter = ""},
        Image{.libraries = {"libtsan.so.2", "libubsan.so.1"}}, Image{.libraries = {"notlibasan.so"}}}) {
    EXPECT_FALSE(CheckPreload({Program("program", Bytes(image))}).has_value());
  }
}

TEST_F(PreloadCheckTest, ASanitizersRuntimeIsNamed) {
  for (const auto& [library, name] : {std::pair{"libasan.so.8", "AddressSanitizer"},
                                      std::pair{"libclang_rt.asan-x86_64.so", "AddressSanitizer"},
                                      std::pair{"/opt/lib/libhwasan.so.0", "HWAddressSanitizer"}}) {
    const auto finding = CheckPreload({Program("program", Bytes({.libraries = {"libc.so.6", library}}))});
    ASSERT_TRUE(finding.has_value()) << library;
    EXPECT_EQ(finding->obstacle, PreloadObstacle::kSanitizer);
    EXPECT_EQ(finding->detail, name);
    EXPECT_THAT(PreloadLine(*finding), HasSubstr(name));
  }
}

TEST_F(PreloadCheckTest, OtherLoadersAndMachinesAreNamed) {
  const auto musl = CheckPreload({Program("musl", Bytes({.interpreter = "/lib/ld-musl-x86_64.so.1"}))});
  ASSERT_TRUE(musl.has_value());
  EXPECT_EQ(musl->obstacle, PreloadObstacle::kMusl);
  const auto old = CheckPreload({Program("old", Bytes({.machine = EM_386, .elf_class = ELFCLASS32}))});
  ASSERT_TRUE(old.has_value());
  EXPECT_EQ(old->obstacle, PreloadObstacle::kArchitecture);
}

TEST_F(PreloadCheckTest, AScriptIsItsInterpreter) {
  const std::string program = Program("asan", Bytes({.libraries = {"libasan.so.8"}}));
  const std::string plain = Program("plain", Bytes({}));
  for (const std::string& line : {"#!" + program, "#! " + program + " -x", "#!/usr/bin/env A=1 " + program}) {
    const auto finding = CheckPreload({Program("script", line + "\nexit\n")});
    ASSERT_TRUE(finding.has_value()) << line;
    EXPECT_EQ(finding->program, program);
  }
  EXPECT_FALSE(CheckPreload({Program("script", "#!" + plain + "\n")}).has_value());
  EXPECT_FALSE(CheckPreload({Program("empty", "#!")}).has_value());
  EXPECT_FALSE(CheckPreload({Program("round", "#!" + dir_.File("round") + "\n")}).has_value());
  EXPECT_FALSE(CheckPreload({Program("long", "#!" + std::string(5000, 'x'))}).has_value());
}

TEST_F(PreloadCheckTest, FilesThatExecutingGoesThrough) {
  const std::string plain = Program("plain", Bytes({}));
  const std::string inner = Program("inner", "#!" + plain + "\n");
  const std::string outer = Program("outer", "#!/usr/bin/env " + inner + "\n");
  EXPECT_THAT(FilesExecuted({outer, "--option"}), ElementsAre(outer, inner, plain));
  EXPECT_THAT(FilesExecuted({Program("lost", "#!/nowhere/sh\n")}),
              ElementsAre(dir_.File("lost"), "/nowhere/sh"));
  EXPECT_TRUE(FilesExecuted({"no-such-program"}).empty());
  EXPECT_TRUE(FilesExecuted({}).empty());
  EXPECT_LE(FilesExecuted({Program("round", "#!" + dir_.File("round") + "\n")}).size(), 6u) << "it ends";
}

TEST(FindSymbols, WhatAFileDefines) {
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const auto found = FindSymbols(fd, {"main", "no_such_symbol", "malloc"});
  close(fd);
  EXPECT_TRUE(found.contains("main"));
  EXPECT_FALSE(found.contains("no_such_symbol"));
}

TEST(FindSymbols, DamagedFiles) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string image(size_t{1} << 16, '\0');
  file.read(image.data(), static_cast<std::streamsize>(image.size()));
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = image;
    Elf64_Ehdr header;
    std::memcpy(&header, damaged.data(), sizeof header);
    header.e_shoff = random() % damaged.size();  // sections of whatever is there
    header.e_shnum = static_cast<uint16_t>(random());
    std::memcpy(damaged.data(), &header, sizeof header);
    for (int k = 0; k < 20; ++k)
      damaged[sizeof header + random() % (damaged.size() - sizeof header)] = static_cast<char>(random());
    const int fd = memfd_create("damaged", MFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(write(fd, damaged.data(), damaged.size()), static_cast<ssize_t>(damaged.size()));
    FindSymbols(fd, {"main"});
    close(fd);
  }
}

TEST_F(PreloadCheckTest, ProgramsBehindALauncherCount) {
  const std::string launcher = Program("launcher", Bytes({}));
  const std::string program = Program("asan", Bytes({.libraries = {"libasan.so.8"}}));
  const auto finding = CheckPreload({launcher, "-n", "4", program});
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->program, program);
  EXPECT_FALSE(CheckPreload({launcher, Program("data", Bytes({.libraries = {"libasan.so.8"}}), 0644)}));
}

TEST_F(PreloadCheckTest, ASetUserIdProgramGainsPrivileges) {
  const std::string program = Program("setuid", Bytes({}));
  if (chown(program.c_str(), geteuid() + 1, getegid()) != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  const auto finding = CheckPreload({program});
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->obstacle, PreloadObstacle::kPrivileges);
  EXPECT_FALSE(CheckPreload({Program("own", Bytes({}), 04755)}).has_value()) << "our own: no other rights";
}

TEST_F(PreloadCheckTest, WhatIsNoProgramIsNoObstacle) {
  EXPECT_FALSE(CheckPreload({}).has_value());
  EXPECT_FALSE(CheckPreload({""}).has_value());
  EXPECT_FALSE(CheckPreload({dir_.File("missing")}).has_value());
  EXPECT_FALSE(CheckPreload({dir_.path()}).has_value());
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0755), 0);
  EXPECT_FALSE(CheckPreload({dir_.File("pipe")}).has_value()) << "and it is not waited for";
}

}  // namespace
}  // namespace gpuprobe::cli
