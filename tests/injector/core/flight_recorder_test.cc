#include "injector/core/flight_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace gpuprobe::injector {
namespace {

using ::testing::ElementsAre;

// The open ranges by the ring, the innermost last; "?" where a record is not that range's.
std::vector<std::string> RangesOf(const ThreadState& thread) {
  const flight::ThreadPlace& place = Moments().threads[thread.place];
  EXPECT_EQ(flight::ConditionOf(place.thread), flight::Condition::kWhole);
  std::vector<std::string> ranges;
  const uint64_t depth = place.thread.depth;
  for (uint64_t level = depth > flight::kRanges ? depth - flight::kRanges + 1 : 1; level <= depth; ++level) {
    const flight::Range& range = place.ranges[(level - 1) % flight::kRanges];
    const bool known = flight::ConditionOf(range) == flight::Condition::kWhole && range.level == level;
    ranges.push_back(known ? std::string(range.name, range.name_bytes) : "?");
  }
  return ranges;
}

void Push(ThreadState& thread, const char* name) { RecordRangeOpened(thread, thread.range_depth++, name, 1); }

void Pop(ThreadState& thread, int place) {
  --thread.range_depth;
  RecordRangeClosed(thread, place, 1);
}

CollectiveEvent CallOf(uint32_t communicator, uint64_t sequence) {
  CollectiveEvent call{};
  call.comm = communicator;
  call.seq = sequence;
  call.issue_ns = 100 + sequence;
  call.return_ns = call.issue_ns + 10;
  call.peer = -1;
  return call;
}

std::vector<uint64_t> KeptCalls(uint32_t communicator) {
  std::vector<uint64_t> kept;
  for (const flight::Call& call : Moments().communicators[(communicator - 1) % flight::kCommunicators].last) {
    if (flight::ConditionOf(call) == flight::Condition::kWhole) kept.push_back(call.sequence);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// A ring as a collector makes it.
int MakeRing(uint64_t magic = flight::kMagic, size_t bytes = flight::kRingBytes) {
  const int fd = memfd_create("ring", MFD_CLOEXEC);
  flight::Owner owner{};
  owner.magic = magic;
  owner.version = flight::kVersion;
  flight::Seal(owner);
  EXPECT_EQ(posix_fallocate(fd, 0, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(pwrite(fd, &owner, sizeof(owner), 0), ssize_t{sizeof(owner)});
  return fd;
}

// One whose last page is not there: a store to it could find no memory.
int MakeRingWithAHole() {
  const int fd = MakeRing(flight::kMagic, flight::kRingBytes - 4096);
  EXPECT_EQ(ftruncate(fd, off_t{flight::kRingBytes}), 0);
  return fd;
}

bool Adopt(int fd) {
  OwnDescriptor descriptor;
  EXPECT_TRUE(descriptor.Adopt(fd));
  const bool adopted = AdoptRing(descriptor);
  EXPECT_FALSE(descriptor.open()) << "it is not needed any more";
  return adopted;
}

std::unique_ptr<flight::Ring> Read(int fd) {
  auto ring = std::make_unique<flight::Ring>();
  EXPECT_EQ(pread(fd, ring.get(), sizeof(*ring), 0), ssize_t{sizeof(*ring)});
  return ring;
}

TEST(FlightRecorderTest, RangesOpenAndClose) {
  ThreadState& thread = CurrentThread();
  Push(thread, "step");
  Push(thread, "forward");
  EXPECT_THAT(RangesOf(thread), ElementsAre("step", "forward"));
  Pop(thread, 1);
  EXPECT_THAT(RangesOf(thread), ElementsAre("step"));
}

TEST(FlightRecorderTest, ARangeMayCloseBelowAnother) {
  ThreadState& thread = CurrentThread();
  for (const char* name : {"a", "b", "c", "d"}) Push(thread, name);
  Pop(thread, 1);  // of another domain
  EXPECT_THAT(RangesOf(thread), ElementsAre("a", "c", "d"));
}

TEST(FlightRecorderTest, TheInnermostRangesAreKept) {
  ThreadState& thread = CurrentThread();
  for (int i = 0; i < 10; ++i) Push(thread, std::to_string(i).c_str());
  EXPECT_THAT(RangesOf(thread), ElementsAre("2", "3", "4", "5", "6", "7", "8", "9"));
  Pop(thread, 9);
  Pop(thread, 8);
  // What had the places of the outer ones is recognised by its level.
  EXPECT_THAT(RangesOf(thread), ElementsAre("?", "?", "2", "3", "4", "5", "6", "7"));
}

TEST(FlightRecorderTest, CallsOfAGroupLeaveTogether) {
  const ThreadState& thread = CurrentThread();
  for (uint64_t sequence = 0; sequence < 6; ++sequence)
    RecordCallEntered(thread, CallOf(1, sequence), "AllReduce");
  for (const flight::Call& call : Moments().communicators[0].last) EXPECT_EQ(call.left, 0u);
  for (uint64_t sequence = 0; sequence < 6; ++sequence)
    RecordCallLeft(thread, CallOf(1, sequence), "AllReduce");
  EXPECT_THAT(KeptCalls(1), ElementsAre(2, 3, 4, 5));
  for (const flight::Call& call : Moments().communicators[0].last) EXPECT_EQ(call.left, call.entered + 10);
}

TEST(FlightRecorderTest, ACallThatOnlyThePluginSawIsAdded) {
  const ThreadState& thread = CurrentThread();
  RecordCallLeft(thread, CallOf(1, 7), "AllGather");
  EXPECT_THAT(KeptCalls(1), ElementsAre(7));
}

TEST(FlightRecorderTest, AYoungerCommunicatorTakesAPlaceAndIsCounted) {
  const ThreadState& thread = CurrentThread();
  RecordCallEntered(thread, CallOf(1, 5), "AllReduce");
  RecordCallEntered(thread, CallOf(1 + flight::kCommunicators, 0), "AllReduce");
  EXPECT_THAT(KeptCalls(1), ElementsAre(0));
  RecordReading();
  EXPECT_EQ(Moments().readings[0].displaced, 1u);
}

TEST(FlightRecorderTest, ARefusedCallIsAFailure) {
  CollectiveEvent call = CallOf(1, 0);
  call.result = 5;
  RecordCallEntered(CurrentThread(), call, "AllReduce");
  RecordCallLeft(CurrentThread(), call, "AllReduce");
  const flight::Failure& failure = Moments().failures[1];
  EXPECT_EQ(failure.code, 5);
  EXPECT_STREQ(failure.call, "AllReduce");
}

TEST(FlightRecorderTest, ARingTakesOverWhatWasRecorded) {
  ThreadState& thread = CurrentThread();
  Push(thread, "before");
  const int fd = MakeRing();
  const int kept = dup(fd);
  ASSERT_TRUE(Adopt(fd));
  Push(thread, "after");
  EXPECT_THAT(RangesOf(thread), ElementsAre("before", "after"));
  const flight::Thread in_file = Read(kept)->process.threads[thread.place].thread;
  EXPECT_EQ(flight::ConditionOf(in_file), flight::Condition::kWhole);
  EXPECT_EQ(in_file.depth, 2u);

  // Another collector's.
  const int other = MakeRing();
  const int kept_other = dup(other);
  ASSERT_TRUE(Adopt(other));
  Pop(thread, 1);
  EXPECT_EQ(Read(kept)->process.threads[thread.place].thread.depth, 2u);
  EXPECT_EQ(Read(kept_other)->process.threads[thread.place].thread.depth, 1u);
}

TEST(FlightRecorderTest, ACommunicatorThatWasNotedWhileTheRingCameIsTakenOver) {
  const int fd = MakeRing();
  const int kept = dup(fd);
  ASSERT_TRUE(Adopt(fd));
  // By a thread that had read where to write before.
  flight::Communicator& late = unshared_moments.communicators[4].communicator;
  late.id = 5;
  late.ranks = 8;
  flight::Seal(late);
  RecordReading();
  EXPECT_EQ(Read(kept)->process.communicators[4].communicator.ranks, 8);
  late.ranks = 9;
  flight::Seal(late);
  RecordReading();
  EXPECT_EQ(Read(kept)->process.communicators[4].communicator.ranks, 8) << "what is in the ring is younger";
}

TEST(FlightRecorderTest, WhatIsNoRingIsNotMapped) {
  EXPECT_FALSE(Adopt(MakeRingWithAHole()));
  EXPECT_FALSE(Adopt(MakeRing(/*magic=*/1)));
  EXPECT_FALSE(Adopt(MakeRing(flight::kMagic, flight::kRingBytes - 1)));
  EXPECT_FALSE(Adopt(open("/dev/null", O_RDWR | O_CLOEXEC)));
  EXPECT_EQ(&Moments(), &unshared_moments);
}

TEST(FlightRecorderTest, AChildDoesNotWriteToTheRing) {
  ASSERT_TRUE(WatchForks());
  ThreadState& thread = CurrentThread();
  const int fd = MakeRing();
  const int kept = dup(fd);
  ASSERT_TRUE(Adopt(fd));
  RecordLaunch(thread, 1);
  const pid_t child = fork();
  if (child == 0) {
    RecordLaunch(thread, 2);
    _exit(&Moments() == &unshared_moments ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(kept)->process.threads[thread.place].thread.launches, 1u);
}

TEST(FlightRecorderTest, EveryChangedBitIsSeen) {
  RecordRangeOpened(CurrentThread(), 0, "forward", 7);
  const flight::Range whole = Moments().threads[CurrentThread().place].ranges[0];
  for (size_t bit = 0; bit < sizeof(whole) * 8; ++bit) {
    flight::Range damaged = whole;
    reinterpret_cast<unsigned char*>(&damaged)[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    EXPECT_EQ(flight::ConditionOf(damaged), flight::Condition::kTorn) << bit;
  }
  EXPECT_EQ(flight::ConditionOf(flight::Range{}), flight::Condition::kEmpty);
}

}  // namespace
}  // namespace gpuprobe::injector
