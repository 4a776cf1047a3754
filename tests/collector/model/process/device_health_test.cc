#include "collector/model/process/device_health.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using testing::kSecond;

v1::DeviceObservation Look(uint64_t interval_ns, bool busy, uint32_t clock_mhz,
                           std::initializer_list<std::pair<v1::ClockLimit, uint64_t>> limits = {}) {
  v1::DeviceObservation o;
  o.set_interval_ns(interval_ns);
  o.set_busy(busy);
  o.set_sm_clock_mhz(clock_mhz);
  for (const auto& [limit, time_ns] : limits) {
    v1::ClockLimitTime& entry = *o.add_limits();
    entry.set_limit(limit);
    entry.set_time_ns(time_ns);
  }
  return o;
}

TEST(DeviceHealth, MeansAreOfTheTimeInWhichItComputed) {
  DeviceHealth health;
  health.Apply(Look(0, true, 100), 0);  // the first look: of no time
  health.Apply(Look(kSecond, true, 1980, {{v1::CLOCK_LIMIT_THERMAL, kSecond / 4}}), kSecond);
  health.Apply(Look(3 * kSecond, true, 1000, {{v1::CLOCK_LIMIT_THERMAL, kSecond}}), 4 * kSecond);
  health.Apply(Look(kSecond, false, 210, {{v1::CLOCK_LIMIT_CLOCKS_SET, kSecond}}), 5 * kSecond);
  EXPECT_EQ(health.observed_ns(), 5 * kSecond);
  EXPECT_EQ(health.busy_ns(), 4 * kSecond);
  EXPECT_DOUBLE_EQ(health.MeanClockMhz(), (1980 + 3 * 1000) / 4.0);
  EXPECT_EQ(health.lowest_clock_mhz(), 1000U);
  EXPECT_EQ(health.clock_mhz(), 210U);
  EXPECT_EQ(health.LimitedNs(v1::CLOCK_LIMIT_THERMAL), kSecond + kSecond / 4);
  EXPECT_EQ(health.LimitedNs(v1::CLOCK_LIMIT_CLOCKS_SET), 0U);
}

TEST(DeviceHealth, AnUnknownClockLowersNoMean) {
  DeviceHealth health;
  health.Apply(Look(kSecond, true, 0), kSecond);
  EXPECT_EQ(health.MeanClockMhz(), 0);
  EXPECT_EQ(health.lowest_clock_mhz(), 0U);
}

TEST(DeviceHealth, ErrorsAddUpAndTheLatestAreKept) {
  DeviceHealth health;
  for (uint32_t i = 0; i < 2 * DeviceHealth::kMostXids; ++i) {
    v1::DeviceObservation o = Look(kSecond, true, 1980);
    o.set_ecc_uncorrected(2);
    o.add_xids(i);
    o.set_remap_failed(i == 3);
    health.Apply(o, i * kSecond);
  }
  EXPECT_EQ(health.ecc_uncorrected(), 4 * DeviceHealth::kMostXids);
  EXPECT_EQ(health.xid_count(), 2 * DeviceHealth::kMostXids);
  ASSERT_EQ(health.xids().size(), DeviceHealth::kMostXids);
  EXPECT_EQ(health.xids().back().number, 2 * DeviceHealth::kMostXids - 1);
  EXPECT_EQ(health.xids().back().time_ns, (2 * DeviceHealth::kMostXids - 1) * kSecond);
  EXPECT_TRUE(health.remap_failed());
}

TEST(DeviceHealth, ALogMayClaimAnything) {
  DeviceHealth health;
  v1::DeviceObservation o = Look(UINT64_MAX, true, UINT32_MAX, {{v1::CLOCK_LIMIT_THERMAL, UINT64_MAX}});
  o.mutable_limits(0)->set_limit(static_cast<v1::ClockLimit>(1'000'000));
  o.add_limits()->set_limit(static_cast<v1::ClockLimit>(-1));
  o.set_power_milliwatts(UINT32_MAX);
  o.set_ecc_corrected(UINT64_MAX);
  for (int i = 0; i < 1000; ++i) health.Apply(o, UINT64_MAX);
  EXPECT_LE(health.MeanClockMhz(), 100'000);
  EXPECT_LE(health.MeanPowerWatts(), 100'000);
}

}  // namespace
}  // namespace gpuprobe::model
