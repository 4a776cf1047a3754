#include "injector/core/host_clock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpuprobe::injector {
namespace {

class HostClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_clock.Start();
    if (!host_clock.in_use()) GTEST_SKIP() << "this machine has no counter that the kernel trusts";
  }
};

// Whatever the load: a stamp lies between what the kernel's clock said before and after it.
TEST_F(HostClockTest, StampsAreTheKernelsTimeWithinTheErrorThatItStates) {
  struct Noted {
    uint64_t before_ns, stamp, after_ns;
  };
  std::vector<Noted> noted;
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 200; ++k) {
      const uint64_t before_ns = NowNs();
      const uint64_t stamp = Stamp();
      noted.push_back({before_ns, stamp, NowNs()});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    host_clock.Read(true);
  }
  const uint64_t error_ns = host_clock.max_error_ns() + 50;  // the counter is read out of order
  for (const Noted& n : noted) {
    ASSERT_TRUE(host_clock.IsFinal(n.stamp));
    const uint64_t told_ns = host_clock.RealtimeNs(n.stamp);
    ASSERT_GE(told_ns + error_ns, n.before_ns);
    ASSERT_LE(told_ns, n.after_ns + error_ns);
  }
  RecordProperty("max_error_ns", static_cast<int>(host_clock.max_error_ns()));
  EXPECT_EQ(host_clock.fallbacks() == 0, stamps_are_ticks.load());
}

TEST_F(HostClockTest, StampsOfOneThreadKeepTheirOrder) {
  std::vector<uint64_t> stamps;
  for (int i = 0; i < 200'000; ++i) {
    stamps.push_back(Stamp());
    if (i % 10'000 == 0) {
      host_clock.Read(true);
      stamps_are_ticks = i % 20'000 == 0;  // one clock takes over from the other
    }
  }
  host_clock.Read(true);
  uint64_t before = 0;
  for (const uint64_t stamp : stamps) {
    const uint64_t now = host_clock.RealtimeNs(stamp);
    ASSERT_GE(now + 2 * host_clock.max_error_ns() + 50, before);
    before = now;
  }
}

TEST_F(HostClockTest, AStampThatIsYoungerThanTheLastReadingIsNotFinal) {
  host_clock.Read(true);
  const uint64_t stamp = Stamp();
  EXPECT_FALSE(host_clock.IsFinal(stamp));
  host_clock.Read(true);
  EXPECT_TRUE(host_clock.IsFinal(stamp));
}

TEST(HostClock, WithoutACounterStampsAreNanoseconds) {
  const uint64_t before_ns = NowNs();
  const uint64_t stamp = Stamp();
  EXPECT_EQ(stamp & kTickStamp, 0u);
  EXPECT_GE(stamp, before_ns);
  EXPECT_EQ(host_clock.RealtimeNs(stamp), stamp);
  EXPECT_TRUE(host_clock.IsFinal(stamp));
  host_clock.Read(true);
  EXPECT_FALSE(host_clock.in_use());
}

}  // namespace
}  // namespace gpuprobe::injector
