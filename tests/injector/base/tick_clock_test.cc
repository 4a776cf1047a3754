#include "injector/base/tick_clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// A machine whose counter runs at 2.7 GHz and whose clocks are slewed and set as the test says.
class TickClockTest : public ::testing::Test {
 protected:
  // Lets time pass. `ppm`: how much faster the clocks run than they did at first.
  void Pass(uint64_t ns, double ppm = 0) {
    ticks_ += static_cast<double>(ns) * 2.7;
    const double passed = static_cast<double>(ns) * (1 + ppm * 1e-6);
    realtime_ += passed;
    monotonic_ += passed;
  }
  uint64_t Ticks() const { return static_cast<uint64_t>(std::llround(ticks_)); }
  uint64_t Realtime() const { return static_cast<uint64_t>(std::llround(realtime_)) + kEpoch; }
  bool Read(uint64_t error_ns = 30) {
    // Wrong by as much as it says, to one side and the other.
    sign_ = !sign_;
    const uint64_t wrong = error_ns;
    return clock_->Add({Ticks(), sign_ ? Realtime() + wrong : Realtime() - wrong,
                        static_cast<uint64_t>(std::llround(monotonic_)) + (sign_ ? wrong : -wrong),
                        error_ns});
  }
  int64_t ErrorNow() const { return static_cast<int64_t>(clock_->RealtimeNs(Ticks()) - Realtime()); }

  static constexpr uint64_t kEpoch = 1'700'000'000 * kSecond;
  double ticks_ = 5e12;
  double realtime_ = 0;
  double monotonic_ = 1e9;
  bool sign_ = false;
  std::unique_ptr<TickClock> clock_ = std::make_unique<TickClock>();
};

TEST_F(TickClockTest, TimesBetweenReadingsAreRightWithinWhatItSays) {
  struct Moment {
    uint64_t ticks, realtime_ns;
  };
  std::vector<Moment> moments;
  ASSERT_TRUE(Read());
  for (int i = 0; i < 20; ++i) {
    moments.clear();
    for (int k = 0; k < 100; ++k) {
      Pass(5 * kMillisecond + static_cast<uint64_t>(k), 40);  // an ordinary crystal: 40 ppm off
      moments.push_back({Ticks(), Realtime()});
    }
    ASSERT_TRUE(Read());
    for (const Moment& moment : moments) {
      const auto error = static_cast<int64_t>(clock_->RealtimeNs(moment.ticks) - moment.realtime_ns);
      ASSERT_LE(std::llabs(error), 31);
    }
  }
  EXPECT_LE(clock_->max_error_ns(), 200u);
}

// A daemon that slews faster from the middle of a stretch on is noticed, and said by how much at least.
TEST_F(TickClockTest, ASlewWithinAStretchIsMeasured) {
  for (int i = 0; i < 10; ++i) {
    Pass(500 * kMillisecond);
    ASSERT_TRUE(Read());
  }
  Pass(250 * kMillisecond);
  const uint64_t ticks = Ticks();
  const uint64_t realtime_ns = Realtime();
  Pass(250 * kMillisecond, 100);  // 25 us in all
  EXPECT_FALSE(Read());
  const auto error = static_cast<int64_t>(clock_->RealtimeNs(ticks) - realtime_ns);
  EXPECT_GT(std::llabs(error), 10'000);
  EXPECT_LE(static_cast<uint64_t>(std::llabs(error)), clock_->max_error_ns());
  // At the new pace all is quiet again once the baseline has it.
  bool quiet = false;
  for (int i = 0; i < 3; ++i) {
    Pass(500 * kMillisecond, 100);
    quiet = Read();
  }
  EXPECT_TRUE(quiet);
}

TEST_F(TickClockTest, AClockThatIsSetHasItsNewTimeFromTheNextReadingOn) {
  for (const double by_ns : {3600e9, -3600e9, 40e3, -40e3}) {
    for (int i = 0; i < 3; ++i) {
      Pass(500 * kMillisecond);
      ASSERT_TRUE(Read());
    }
    Pass(100 * kMillisecond);
    const uint64_t before = Ticks();
    const uint64_t before_ns = Realtime();
    realtime_ += by_ns;
    Pass(100 * kMillisecond);
    const uint64_t after = Ticks();
    Pass(kMillisecond);
    EXPECT_FALSE(Read());
    // The stretch keeps the old time throughout: what lies in it has the right length.
    EXPECT_LE(std::llabs(static_cast<int64_t>(clock_->RealtimeNs(before) - before_ns)), 31);
    const auto length = clock_->RealtimeNs(after) - clock_->RealtimeNs(before);
    EXPECT_NEAR(static_cast<double>(length), 100e6, 100);
    Pass(kMillisecond);
    EXPECT_LE(std::llabs(ErrorNow()), 200);
  }
}

// The machine was suspended or moved to another: the counter starts anew, or leaps.
TEST_F(TickClockTest, ACounterThatJumps) {
  for (int i = 0; i < 3; ++i) {
    Pass(500 * kMillisecond);
    ASSERT_TRUE(Read());
  }
  const uint64_t old_ticks = Ticks();
  ticks_ = 1e9;
  Pass(500 * kMillisecond);
  EXPECT_FALSE(Read());
  // What was noted by the old counter has a time, and not one in the future.
  EXPECT_LE(clock_->RealtimeNs(old_ticks), Realtime() + 100);
  Pass(500 * kMillisecond);
  Read();
  Pass(kMillisecond);
  EXPECT_LE(std::llabs(ErrorNow()), 200);

  Pass(500 * kMillisecond);
  Read();
  const uint64_t reading_ns = Realtime();
  Pass(kMillisecond);
  const uint64_t noted = Ticks();
  ticks_ += 1e13;
  Pass(kMillisecond);
  const uint64_t noted_after = Ticks();
  Pass(kMillisecond);
  EXPECT_FALSE(Read());
  EXPECT_GE(clock_->RealtimeNs(noted), reading_ns - 100);
  EXPECT_LE(clock_->RealtimeNs(noted), clock_->RealtimeNs(noted_after));
  EXPECT_LE(clock_->RealtimeNs(noted_after), Realtime() + 100);
}

TEST_F(TickClockTest, TimesNeverDecreaseWithoutAClockThatIsSetBack) {
  uint32_t random = 7;
  std::vector<uint64_t> noted;
  ASSERT_TRUE(Read());
  for (int stretch = 0; stretch < 100; ++stretch) {
    for (int i = 0; i < 50; ++i) {
      random = random * 1664525 + 1013904223;
      Pass(1 + (random >> 8) % (10 * kMillisecond), static_cast<double>(random % 200) - 100);
      noted.push_back(Ticks());
    }
    Read((random >> 16) % 300);
  }
  uint64_t before = 0;
  for (const uint64_t ticks : noted) {
    const uint64_t now = clock_->RealtimeNs(ticks);
    ASSERT_GE(now, before);
    before = now;
  }
}

// Also what was noted before the oldest reading that is kept.
TEST_F(TickClockTest, AnEventThatIsToldLongAfter) {
  ASSERT_TRUE(Read());
  Pass(10 * kMillisecond);
  const uint64_t ticks = Ticks();
  const uint64_t realtime_ns = Realtime();
  for (int i = 0; i < 1000; ++i) {
    Pass(500 * kMillisecond);
    Read();
  }
  EXPECT_LE(std::llabs(static_cast<int64_t>(clock_->RealtimeNs(ticks) - realtime_ns)), 100'000);
}

}  // namespace
}  // namespace gpuprobe::injector
