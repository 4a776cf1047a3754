// The code that a thread of another process runs to make a thread there which loads the library.
//
// Everything that it needs is in the stub itself, which is copied behind the code of a library of that
// process. The thread that is led to it was waiting in a system call. It maps a region, blocks its signals,
// saves its vector registers, calls pthread_create on the region's stack, puts back what it had and goes on
// with its call. Nobody has to look after it: if we are killed once it runs, it returns all the same.
//
//   thread that waited       mmap ── pthread_create ── back in its system call          (some 0.1 ms)
//   thread that it made                    └── dlopen ── gpuprobe_attach ── tells ── munmap, ends
//
// x86-64 and glibc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>

namespace gpuprobe::cli::attach {

// What the stub reads, behind its code. The registers are the thread's, as it is to have them at the end.
struct StubData {
  uint64_t region = 0;  // where it maps kRegionBytes
  uint64_t rip = 0;
  uint64_t rsp = 0;
  uint64_t rax = 0;
  uint64_t rbx = 0;
  uint64_t rcx = 0;
  uint64_t rdx = 0;
  uint64_t rsi = 0;
  uint64_t rdi = 0;
  uint64_t rbp = 0;
  uint64_t r8 = 0;
  uint64_t r9 = 0;
  uint64_t r10 = 0;
  uint64_t r11 = 0;
  uint64_t r12 = 0;
  uint64_t r13 = 0;
  uint64_t r14 = 0;
  uint64_t r15 = 0;
  uint64_t flags = 0;
  // Without glibc's own two, 32 and 33: setuid() of another thread waits until every thread has taken one.
  uint64_t all_signals = ~(uint64_t{3} << 31);
  // Addresses of functions in the process.
  uint64_t errno_location = 0;
  uint64_t pthread_create = 0;
  uint64_t pthread_self = 0;
  uint64_t pthread_detach = 0;
  uint64_t dlopen = 0;
  uint64_t dlsym = 0;
  uint64_t dlerror = 0;
  // Addresses of texts, which follow.
  uint64_t library = 0;
  uint64_t entry = 0;
  uint64_t variables = 0;
  timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
};

// The region: the stack, and above it what the stub reports, at kStackBytes.
inline constexpr uint64_t kStackBytes = 0x18000;
inline constexpr uint64_t kRegionBytes = 0x1a000;

enum class Progress : uint32_t {
  kLoading = 0,
  kStarting = 1,   // the library is there, and its function runs
  kAnswered = 2,   // with `answer`
  kNotLoaded = 3,  // `text` says why
  kCancelled = 4,
};

struct RegionState {
  uint32_t created;   // what pthread_create returned, plus 1; 0: it has not yet
  uint32_t returned;  // 1: the thread that waited is back
  Progress progress;
  int32_t answer;   // of the library's function
  uint32_t read;    // set by us: 1: all is read, so the region may go
  uint32_t cancel;  // set by us: 1: do not call the function
  uint64_t old_mask;
  uint64_t thread;
  char text[512];  // of dlerror; ended by zero
};

// The stub's code, and `data` with the texts behind it, for the address `at`.
std::string MakeStub(StubData data, uint64_t at, const std::string& library, const std::string& entry,
                     const std::string& variables);

}  // namespace gpuprobe::cli::attach
