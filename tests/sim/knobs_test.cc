// The knobs' notation.
#include "tests/sim/core/knobs.h"

#include <gtest/gtest.h>

namespace gpusim {
namespace {

TEST(KnobsTest, DurationsHaveUnits) {
  uint64_t nanoseconds = 0;
  EXPECT_TRUE(ParseDuration("250", &nanoseconds));
  EXPECT_EQ(nanoseconds, 250U);
  EXPECT_TRUE(ParseDuration("1.5us", &nanoseconds));
  EXPECT_EQ(nanoseconds, 1500U);
  EXPECT_TRUE(ParseDuration("2 ms", &nanoseconds));
  EXPECT_EQ(nanoseconds, 2'000'000U);
  EXPECT_TRUE(ParseDuration("3s", &nanoseconds));
  EXPECT_EQ(nanoseconds, 3'000'000'000U);
  for (const char* bad : {"", "fast", "3 weeks", "-1us", "inf"})
    EXPECT_FALSE(ParseDuration(bad, &nanoseconds)) << bad;
}

TEST(KnobsTest, RatesAreBytesASecond) {
  double rate = 0;
  EXPECT_TRUE(ParseRate("300GB/s", &rate));
  EXPECT_EQ(rate, 300e9);
  EXPECT_TRUE(ParseRate("25e9", &rate));
  EXPECT_EQ(rate, 25e9);
  for (const char* bad : {"", "0GB/s", "GB/s", "25GiB/s"}) EXPECT_FALSE(ParseRate(bad, &rate)) << bad;
}

TEST(KnobsTest, TransfersAreRoundedUp) {
  EXPECT_EQ(TransferNs(25'000, 25e9), 1000U);
  EXPECT_EQ(TransferNs(25'001, 25e9), 1001U);
  EXPECT_EQ(TransferNs(1, 25e9), 1U);
}

TEST(KnobsDeathTest, AKnobThatCannotBeReadEndsTheProcessWithItsName) {
  const auto with = [](const char* name, const char* value) {
    setenv(name, value, 1);
    GetKnobs();
  };
  EXPECT_EXIT(with("GPUSIM_KERNELS", "add"), testing::ExitedWithCode(64), "GPUSIM_KERNELS.*add");
  EXPECT_EXIT(with("GPUSIM_KERNELS", "(=3us"), testing::ExitedWithCode(64), "GPUSIM_KERNELS");
  EXPECT_EXIT(with("GPUSIM_PCIE", "quick"), testing::ExitedWithCode(64), "GPUSIM_PCIE");
  EXPECT_EXIT(with("GPUSIM_SLOW", "rank=3"), testing::ExitedWithCode(64), "GPUSIM_SLOW");
}

TEST(KnobsDeathTest, ASlowRankIsSlowAloneAndRulesMatchDemangledNames) {
  const auto duration_of = [](const char* rank, const char* kernel) {
    setenv("RANK", rank, 1);
    setenv("GPUSIM_SLOW", "rank=3,factor=1.5", 1);
    setenv("GPUSIM_KERNELS", "^add\\(float,=40us;gemm=1ms", 1);
    std::exit(static_cast<int>(KernelDurationNs(kernel) / 1000));
  };
  EXPECT_EXIT(duration_of("2", "_Z3addPfi"), testing::ExitedWithCode(10), "") << "add(float*, int)";
  EXPECT_EXIT(duration_of("2", "_Z3addfi"), testing::ExitedWithCode(40), "");
  EXPECT_EXIT(duration_of("3", "_Z3addfi"), testing::ExitedWithCode(60), "");
  EXPECT_EXIT(duration_of("3", "other"), testing::ExitedWithCode(15), "");
}

}  // namespace
}  // namespace gpusim
