// What the kernel says of a thread.
#include "injector/sampling/thread_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace gpuprobe::injector {
namespace {

using wire::ThreadState;

constexpr uint64_t kSecond = 1'000'000'000;

std::set<int> OpenDescriptors() {
  std::set<int> open;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) open.insert(std::atoi(entry->d_name));
  open.erase(dirfd(folder));
  closedir(folder);
  return open;
}

// A thread that waits in a read of a pipe until told to end.
class Reader {
 public:
  Reader() {
    EXPECT_EQ(pipe(pipe_), 0);
    thread_ = std::thread([this] {
      tid_ = static_cast<uint32_t>(gettid());
      char c = 0;
      EXPECT_EQ(read(pipe_[0], &c, 1), 1);
    });
    while (tid_ == 0) std::this_thread::yield();
  }
  ~Reader() {
    End();
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void End() {
    if (!thread_.joinable()) return;
    EXPECT_EQ(write(pipe_[1], "x", 1), 1);
    thread_.join();
  }
  uint32_t tid() const { return tid_; }
  int descriptor() const { return pipe_[0]; }

 private:
  int pipe_[2] = {};
  std::atomic<uint32_t> tid_{0};
  std::thread thread_;
};

KernelView LookUntilItWaits(ThreadFiles* files, const Reader& reader) {
  KernelView view;
  for (int i = 0; i < 5000 && view.system_call != SYS_read; ++i) {
    view = files->Look(reader.tid(), 1, kSecond);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return view;
}

TEST(ThreadFiles, AThreadThatWaitsForAPipe) {
  ThreadFiles files;
  Reader reader;
  const KernelView view = LookUntilItWaits(&files, reader);
  EXPECT_EQ(view.state, ThreadState::kThreadStateSleeping);
  EXPECT_EQ(view.system_call, SYS_read);
  EXPECT_EQ(view.descriptor, reader.descriptor());
  char room[256];
  EXPECT_EQ(ThreadFiles::FileOf(view.descriptor, room, sizeof(room)), "pipe");
  reader.End();
  // A thread can be joined a moment before the kernel has none of it any more.
  KernelView after;
  for (int i = 0; i < 5000 && !after.ended; ++i) {
    after = files.Look(reader.tid(), 1, kSecond);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(after.ended);
}

TEST(ThreadFiles, AThreadThatRuns) {
  ThreadFiles files;
  std::atomic<uint32_t> tid{0};
  std::atomic<bool> end{false};
  std::thread busy([&] {
    tid = static_cast<uint32_t>(gettid());
    while (!end) {
    }
  });
  while (tid == 0) std::this_thread::yield();
  const KernelView view = files.Look(tid, 1, kSecond);
  end = true;
  busy.join();
  EXPECT_EQ(view.state, ThreadState::kThreadStateRunning);
  EXPECT_FALSE(view.ended);
}

// Two that share a processor, looked at in turns.
TEST(ThreadFiles, TheDelaysOfTwoThreadsAreKnown) {
  ThreadFiles files;
  std::array<std::atomic<uint32_t>, 2> tids{};
  std::atomic<bool> end{false};
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  std::vector<std::thread> busy;
  for (std::atomic<uint32_t>& tid : tids) {
    busy.emplace_back([&] {
      sched_setaffinity(0, sizeof(one), &one);
      tid = static_cast<uint32_t>(gettid());
      while (!end) {
      }
    });
  }
  while (tids[0] == 0 || tids[1] == 0) std::this_thread::yield();
  std::array<uint64_t, 2> delays{};
  constexpr int kRounds = 500;
  for (uint64_t round = 1; round < kRounds && (delays[0] == 0 || delays[1] == 0); ++round) {
    for (uint32_t i = 0; i < tids.size(); ++i)
      delays[i] += files.Look(tids[i], i + 1, round * kSecond / 10 + i).run_delay_ns;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  end = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_GT(delays[0], 0u);
  EXPECT_GT(delays[1], 0u);
}

TEST(ThreadFiles, DescriptorsAreOutOfTheProgramsWayAndFew) {
  const std::set<int> before = OpenDescriptors();
  {
    ThreadFiles files;
    std::vector<std::unique_ptr<Reader>> readers;
    for (uint32_t i = 0; i < 20; ++i) {
      readers.push_back(std::make_unique<Reader>());
      files.Look(readers.back()->tid(), i + 1, (i + 1) * kSecond);
    }
    int ours = 0;
    for (const int fd : OpenDescriptors()) ours += fd >= kLowestOwnDescriptor ? 1 : 0;
    EXPECT_GT(ours, 0);
    EXPECT_LE(ours, ThreadFiles::kMostFiles);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(ThreadFiles, ADescriptorThatTheProgramClosedIsOpenedAgainAndNoOtherIsRead) {
  ThreadFiles files;
  Reader reader;
  LookUntilItWaits(&files, reader);
  std::set<int> of_the_program;
  for (const int fd : OpenDescriptors()) {
    if (fd < kLowestOwnDescriptor) continue;
    close(fd);
    ASSERT_EQ(dup2(STDIN_FILENO, fd), fd);
    of_the_program.insert(fd);
  }
  EXPECT_EQ(files.Look(reader.tid(), 1, kSecond).system_call, -1);
  EXPECT_EQ(files.Look(reader.tid(), 1, 2 * kSecond).system_call, SYS_read);
  for (const int fd : of_the_program) EXPECT_EQ(close(fd), 0);
}

TEST(ThreadFiles, FilesOfThreadsThatComeAndGoAreOpenedTwelveTimesASecond) {
  ThreadFiles files;
  int known = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    Reader reader;
    known +=
        files.Look(reader.tid(), i + 1, kSecond + i * 10'000'000).state != ThreadState::kThreadStateUnknown;
  }
  EXPECT_GE(known, 12);
  EXPECT_LE(known, 13);
}

TEST(ThreadFiles, WhatTheKernelWrites) {
  KernelView runs;
  EXPECT_TRUE(ParseSystemCall("running\n", &runs));
  EXPECT_EQ(runs.system_call, -1);
  KernelView writes;
  EXPECT_FALSE(ParseSystemCall("1 0x3 0x7f00 0x10 0x0 0x0 0x0 0x7ffd 0x7f01\n", &writes));
  EXPECT_EQ(writes.system_call, SYS_write);
  EXPECT_EQ(writes.descriptor, 3);
  EXPECT_EQ(writes.sleeps_on, 0u);
  KernelView waits;
  EXPECT_FALSE(ParseSystemCall("202 0x7f0012345678 0x80 0x0\n", &waits));
  EXPECT_EQ(waits.system_call, SYS_futex);
  EXPECT_EQ(waits.descriptor, -1);
  EXPECT_EQ(waits.sleeps_on, 0x7f0012345678u);
  for (const std::string_view text : {"-1 0x7ffd 0x7f01\n", ""}) {
    KernelView in_none;
    EXPECT_FALSE(ParseSystemCall(text, &in_none));
    EXPECT_EQ(in_none.system_call, -1);
    EXPECT_FALSE(in_none.ended);
  }

  KernelView faults;
  ParseSystemCall("-1 0x7ffd 0x7f01\n", &faults);
  EXPECT_EQ(faults.state, ThreadState::kThreadStateUninterruptible) << "waits for a page";
  KernelView gone;
  ParseSystemCall("-1 0x0 0x0\n", &gone);
  EXPECT_TRUE(gone.ended);
  FILE* file = tmpfile();
  EXPECT_TRUE(ThreadFiles::IsOfDisk(fileno(file)));
  fclose(file);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(ThreadFiles::IsOfDisk(ends[0]));
  for (const int end : ends) close(end);
  EXPECT_FALSE(ThreadFiles::IsOfDisk(-1));

  bool ended = true;
  EXPECT_EQ(ParseState("17 (a) R 9) D 1 17", &ended), ThreadState::kThreadStateUninterruptible);
  EXPECT_FALSE(ended);
  EXPECT_EQ(ParseState("17 (python3) S 1", &ended), ThreadState::kThreadStateSleeping);
  EXPECT_EQ(ParseState("17 (python3) t 1", &ended), ThreadState::kThreadStateStopped);
  EXPECT_EQ(ParseState("17 (python3) Z 1", &ended), ThreadState::kThreadStateUnknown);
  EXPECT_TRUE(ended);
  EXPECT_EQ(ParseState("", &ended), ThreadState::kThreadStateUnknown);
  EXPECT_EQ(ParseRunDelay("123456789 42 7\n"), 42U);
}

}  // namespace
}  // namespace gpuprobe::injector
