#include "collector/analysis/work/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuprobe::analysis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GpuHealth Gpu(double clock_mhz, std::vector<LimitedClock> limited = {}) {
  GpuHealth h;
  h.observed_s = h.busy_s = 60;
  h.clock_mhz = clock_mhz;
  h.max_clock_mhz = 1980;
  h.temperature_c = 60;
  h.power_limit_w = 700;
  h.limited = std::move(limited);
  return h;
}

const GpuHealth kCapped = Gpu(1300, {{ClockLimit::kPowerCap, 0.9}});

TEST(GpuHealth, ClocksAreComparedWhereBothWereObservedForLongEnough) {
  EXPECT_EQ(CompareClocks(Gpu(1110), Gpu(1980)), ClockComparison::kLower);
  EXPECT_EQ(CompareClocks(Gpu(1900), Gpu(1980)), ClockComparison::kAsHigh);
  EXPECT_EQ(CompareClocks(Gpu(1980), Gpu(1110)), ClockComparison::kAsHigh);
  EXPECT_EQ(CompareClocks(Gpu(0), Gpu(1980)), ClockComparison::kUnknown);
  GpuHealth brief = Gpu(1110);
  brief.busy_s = 1;
  EXPECT_EQ(CompareClocks(brief, Gpu(1980)), ClockComparison::kUnknown);
  EXPECT_EQ(CompareClocks(Gpu(1110), UsualHealth({})), ClockComparison::kUnknown);
}

TEST(GpuHealth, TheLimitIsWhatTheOthersDoNotHave) {
  EXPECT_EQ(LimitOf(Gpu(1000, {{ClockLimit::kPowerCap, 0.95}, {ClockLimit::kThermal, 0.3}}), kCapped),
            ClockLimit::kThermal);
  EXPECT_EQ(LimitOf(Gpu(1000, {{ClockLimit::kPowerCap, 0.92}}), kCapped), ClockLimit::kUnknown);
  EXPECT_EQ(LimitOf(Gpu(1000), kCapped), ClockLimit::kUnknown);
  // All are under their power limit all the time, and its own is lower.
  GpuHealth low = Gpu(1000, {{ClockLimit::kPowerCap, 0.92}});
  low.power_limit_w = 400;
  EXPECT_EQ(LimitOf(low, kCapped), ClockLimit::kPowerCap);
  EXPECT_THAT(ClockText(low, kCapped, 1.3, "ranks"),
              HasSubstr("its power limit of 400 W (theirs: 700 W) keeps it down 92.0 % of the time"));
}

TEST(GpuHealth, OneSickGpuAmongTheOthersDoesNotChangeWhatIsUsual) {
  const GpuHealth usual = UsualHealth({Gpu(1980), Gpu(1970), Gpu(300, {{ClockLimit::kThermal, 1}}), {}});
  EXPECT_EQ(usual.clock_mhz, 1970);
  EXPECT_TRUE(usual.limited.empty());
  // One whose clock NVML does not know has no part in it.
  EXPECT_EQ(UsualHealth({Gpu(0), Gpu(0), Gpu(1980)}).clock_mhz, 1980);
}

TEST(GpuHealth, ALowerClockExplainsAsMuchAsItsRatio) {
  const GpuHealth slow = Gpu(990, {{ClockLimit::kPowerBrake, 0.5}});
  EXPECT_THAT(ClockText(slow, Gpu(1980), 2, "GPUs"),
              "While it computed its GPU ran at 990 MHz, the other GPUs' at 1,980 MHz (by one look a "
              "second): the power supply's "
              "brake signal "
              "keeps it down 50.0 % of the time.");
  EXPECT_THAT(ClockText(slow, Gpu(1980), 4, "ranks"), HasSubstr("too little to explain"));
  // Kernels that wait for memory do not slow down as much as the clock.
  EXPECT_THAT(ClockText(slow, Gpu(1980), 1.3, "ranks"), Not(HasSubstr("too little")));
  EXPECT_THAT(ClockText(Gpu(990), Gpu(1980), 2, "ranks"), HasSubstr("NVML does not say why"));
  EXPECT_THAT(ClockText(Gpu(1975), Gpu(1980), 2, "ranks"), HasSubstr("so the clock does not explain it"));
  // A little lower, and a little slower: neither is claimed.
  EXPECT_THAT(ClockText(Gpu(1900), Gpu(1980), 1.05, "ranks"), Not(HasSubstr("explain")));
  EXPECT_EQ(ClockText({}, Gpu(1980), 2, "ranks"), "");
}

TEST(GpuHealth, ALinkIsSlowerByLanesOrGeneration) {
  const auto link = [](uint32_t generation, uint32_t lanes) {
    GpuHealth h = Gpu(1980);
    h.pcie_generation = generation;
    h.pcie_lanes = lanes;
    return h;
  };
  EXPECT_TRUE(HasSlowerLink(link(5, 8), link(5, 16)));
  EXPECT_TRUE(HasSlowerLink(link(4, 16), link(5, 16)));
  EXPECT_FALSE(HasSlowerLink(link(5, 16), link(5, 16)));
  EXPECT_FALSE(HasSlowerLink(link(0, 0), link(5, 16)));
  EXPECT_FALSE(HasSlowerLink(link(5, 16), link(0, 0)));
}

TEST(GpuHealth, ErrorsHaveAMeaningOrNone) {
  ASSERT_NE(MeaningOfXid(79), nullptr);
  EXPECT_EQ(MeaningOfXid(79)->blame, XidBlame::kGpu);
  EXPECT_EQ(MeaningOfXid(31)->blame, XidBlame::kProgram);
  EXPECT_EQ(MeaningOfXid(7777), nullptr);
}

}  // namespace
}  // namespace gpuprobe::analysis
