// Reading what may not be there.
#include "injector/base/own_memory.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>

namespace gpuprobe::injector {
namespace {

// Two pages, of which the second cannot be read.
class OwnMemory : public ::testing::Test {
 protected:
  OwnMemory() {
    memory_ = static_cast<char*>(
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + page_, page_, PROT_NONE);
  }
  ~OwnMemory() override { munmap(memory_, 2 * page_); }
  // The end of the first page.
  char* Before(size_t bytes) const { return memory_ + page_ - bytes; }
  static std::string TextAt(const char* from) {
    char to[16];
    return {to, ReadText(from, to, sizeof to)};
  }

  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* memory_;
};

TEST_F(OwnMemory, IsReadWhereItIsThere) {
  char to[4];
  std::memcpy(Before(4), "abcd", 4);
  EXPECT_EQ(ReadMemory(Before(4), to, 4), ReadResult::kRead);
  EXPECT_EQ(std::string(to, 4), "abcd");
}

TEST_F(OwnMemory, IsGoneWhereItIsNot) {
  char to[4];
  errno = ENOENT;
  EXPECT_EQ(ReadMemory(memory_ + page_, to, 4), ReadResult::kGone);
  EXPECT_EQ(ReadMemory(nullptr, to, 4), ReadResult::kGone);
  EXPECT_EQ(errno, ENOENT) << "the program's";
}

TEST_F(OwnMemory, ATextEndsAtItsZero) {
  EXPECT_EQ(TextAt("default_pg"), "default_pg");
  EXPECT_EQ(TextAt(""), "");
  EXPECT_EQ(TextAt(nullptr), "");
}

TEST_F(OwnMemory, ALongTextIsCut) { EXPECT_EQ(TextAt("0123456789abcdefghij"), "0123456789abcdef"); }

TEST_F(OwnMemory, ATextMayEndWithThePage) {
  std::memcpy(Before(5), "pipe", 5);
  EXPECT_EQ(TextAt(Before(5)), "pipe") << "nothing behind it is touched";
  std::memset(Before(4), 'x', 4);
  EXPECT_EQ(TextAt(Before(4)), "") << "it goes on where nothing can be read";
  EXPECT_EQ(TextAt(memory_ + page_), "");
}

TEST_F(OwnMemory, ATextMayReachIntoTheNextPage) {
  mprotect(memory_ + page_, page_, PROT_READ | PROT_WRITE);
  std::memcpy(Before(3), "tensor", 7);
  EXPECT_EQ(TextAt(Before(3)), "tensor");
}

TEST_F(OwnMemory, WideTextIsReadAsWell) {
  wchar_t to[4];
  EXPECT_EQ(CopyText(L"abc", to, 4), 3);
  EXPECT_EQ(CopyText(L"abcdef", to, 4), 4);
  std::memset(Before(8), 'x', 8);
  EXPECT_EQ(CopyText(reinterpret_cast<const wchar_t*>(Before(8)), to, 4), -1);
}

// As in a sandbox that does not allow process_vm_readv.
TEST_F(OwnMemory, IsLookedAtFirstWhereTheKernelMayNotCopy) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    GTEST_SKIP() << "filters cannot be installed here";
  char to[8];
  std::memcpy(Before(4), "abc", 4);
  errno = ENOENT;
  EXPECT_EQ(ReadMemory(Before(4), to, 4), ReadResult::kRead);
  EXPECT_STREQ(to, "abc");
  EXPECT_EQ(ReadMemory(Before(4), to, 8), ReadResult::kGone);
  EXPECT_EQ(ReadMemory(reinterpret_cast<const void*>(-4), to, 8), ReadResult::kGone);
  EXPECT_EQ(ReadMemory("a constant", to, 8), ReadResult::kRead);
  EXPECT_EQ(TextAt(Before(4)), "abc");
  EXPECT_EQ(errno, ENOENT) << "the program's";
}

}  // namespace
}  // namespace gpuprobe::injector
