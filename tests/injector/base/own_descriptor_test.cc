#include "injector/base/own_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace gpuprobe::injector {
namespace {

int LowestFree() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(fd);
  return fd;
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(OwnDescriptor, StaysOutOfTheProgramsWay) {
  const int lowest = LowestFree();
  OwnDescriptor file;
  ASSERT_TRUE(file.Open("/proc/self/status", O_RDONLY));
  OwnDescriptor socket;
  ASSERT_TRUE(socket.OpenStreamSocket());
  EXPECT_GE(file.get(), 512);
  EXPECT_GE(socket.get(), 512);
  EXPECT_EQ(fcntl(file.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(socket.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(LowestFree(), lowest);
}

TEST(OwnDescriptor, ANumberThatIsTheProgramsByNowIsLeftAlone) {
  OwnDescriptor file;
  ASSERT_TRUE(file.Open("/proc/self/status", O_RDONLY));
  const int number = file.get();
  const int theirs = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(theirs, number), number);
  EXPECT_FALSE(file.StillOurs());
  file.Close();
  EXPECT_FALSE(file.open());
  EXPECT_TRUE(IsOpen(number));
  close(number);
  close(theirs);
}

TEST(OwnDescriptor, WhatIsNotThereIsNotOpened) {
  OwnDescriptor file;
  EXPECT_FALSE(file.Open("/proc/self/no-such-file", O_RDONLY));
  EXPECT_FALSE(file.Adopt(-1));
  EXPECT_FALSE(file.open());
  EXPECT_FALSE(file.StillOurs());
}

TEST(OwnDescriptor, UnderALowLimitItIsAsHighAsPossible) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &low);
  int number = -1;
  int next = -1;
  {
    OwnDescriptor file;
    OwnDescriptor other;
    EXPECT_TRUE(file.Open("/proc/self/status", O_RDONLY));
    EXPECT_TRUE(other.Open("/proc/self/status", O_RDONLY));
    number = file.get();
    next = other.get();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(number, 63);
  EXPECT_EQ(next, 62);
}

TEST(OwnDescriptor, WithoutDescriptorsItFailsQuietly) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &low);
  std::vector<int> all;
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) all.push_back(fd);
  OwnDescriptor file;
  EXPECT_FALSE(file.Open("/proc/self/status", O_RDONLY));
  EXPECT_FALSE(file.OpenStreamSocket());
  // The last sixteen are the program's.
  const auto give_back = [&all](int count) {
    for (int i = 0; i < count; ++i, all.pop_back()) close(all.back());
  };
  give_back(16);
  EXPECT_FALSE(file.Open("/proc/self/status", O_RDONLY));
  EXPECT_FALSE(file.OpenStreamSocket());
  give_back(1);
  EXPECT_TRUE(file.Open("/proc/self/status", O_RDONLY));
  file.Close();
  for (const int fd : all) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(OwnDescriptor, ReadingAFileLeavesNothingOpen) {
  const int lowest = LowestFree();
  char text[64];
  EXPECT_EQ(ReadOwnFile("/proc/self/status", text, sizeof(text)), sizeof(text));
  EXPECT_EQ(std::string(text, 5), "Name:");
  EXPECT_EQ(ReadOwnFile("/proc/self/no-such-file", text, sizeof(text)), 0u);
  EXPECT_EQ(LowestFree(), lowest);
  EXPECT_FALSE(IsOpen(512));
}

}  // namespace
}  // namespace gpuprobe::injector
