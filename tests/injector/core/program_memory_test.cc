// What the program passes is read wherever it lies, and nothing happens where it is not.
#include "injector/core/program_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

namespace gpuprobe::injector {
namespace {

constexpr size_t kCapacity = 64;
const size_t kPageBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));

char* TwoPages() {
  return static_cast<char*>(
      mmap(nullptr, 2 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// The text at `from`, "(gone)" where it cannot be read; `in_place`: it was not copied.
std::string TextAt(const char* from, bool* in_place = nullptr) {
  char space[kCapacity];
  std::string_view text;
  if (!TextOfProgram(CurrentThread(), from, space, sizeof(space), &text)) return "(gone)";
  if (in_place != nullptr) *in_place = text.data() == from;
  return std::string(text);
}

TEST(ProgramMemory, ConstantsAndTheStackAreReadInPlace) {
  bool in_place = false;
  EXPECT_EQ(TextAt("a constant", &in_place), "a constant");
  EXPECT_TRUE(in_place);
  char on_stack[] = "on the stack";
  EXPECT_EQ(TextAt(on_stack, &in_place), "on the stack");
  EXPECT_TRUE(in_place);
  std::thread([] {
    char there[] = "its own stack";
    bool found_in_place = false;
    EXPECT_EQ(TextAt(there, &found_in_place), "its own stack");
    EXPECT_TRUE(found_in_place);
  }).join();
}

TEST(ProgramMemory, EverythingElseIsCopied) {
  static char written[] = "may be unmapped";
  const std::string on_heap = "on the heap, since it is longer than a string has room for";
  for (const char* text : {static_cast<const char*>(written), on_heap.c_str()}) {
    bool in_place = true;
    EXPECT_EQ(TextAt(text, &in_place), text);
    EXPECT_FALSE(in_place) << text;
  }
}

TEST(ProgramMemory, WhatIsNotThereIsGone) {
  char* pages = TwoPages();
  std::memset(pages, 'x', kPageBytes);
  mprotect(pages + kPageBytes, kPageBytes, PROT_NONE);
  EXPECT_EQ(TextAt(pages + kPageBytes - 3), "(gone)") << "it does not end where it can be read";
  EXPECT_EQ(TextAt(pages + kPageBytes), "(gone)");
  uint64_t value = 0;
  EXPECT_FALSE(CopyFromProgram(CurrentThread(), pages + kPageBytes - 4, &value, sizeof(value)));
  munmap(pages, 2 * kPageBytes);
  EXPECT_EQ(TextAt(pages), "(gone)");
  EXPECT_EQ(TextAt(nullptr), "");
}

ucontext_t main_context;
ucontext_t fiber_context;

void Fiber() {
  char here[] = "on a fiber";
  bool in_place = true;
  EXPECT_EQ(TextAt(here, &in_place), "on a fiber");
  EXPECT_FALSE(in_place);
  int below = 0;
  EXPECT_FALSE(IsBelowOwnStackInUse(CurrentThread(), reinterpret_cast<char*>(&below) - 1024));
}

TEST(ProgramMemory, AFibersStackIsNotTheThreads) {
  constexpr size_t kStackBytes = size_t{256} << 10;
  char on_stack[] = "known";
  EXPECT_EQ(TextAt(on_stack), "known");
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  getcontext(&fiber_context);
  fiber_context.uc_stack.ss_sp = stack;
  fiber_context.uc_stack.ss_size = kStackBytes;
  fiber_context.uc_link = &main_context;
  makecontext(&fiber_context, Fiber, 0);
  swapcontext(&main_context, &fiber_context);
  munmap(stack, kStackBytes);
}

}  // namespace
}  // namespace gpuprobe::injector
