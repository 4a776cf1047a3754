#include "collector/timeline/occupancy.h"

#include <gtest/gtest.h>

namespace gpuprobe::timeline {
namespace {

const Process::Device kH100{.ordinal = 0,
                            .name = {},
                            .memory_bytes = 0,
                            .multiprocessors = 132,
                            .compute_major = 9,
                            .compute_minor = 0};

v1::KernelSite SiteOf(uint32_t grid, uint32_t block, uint32_t registers, uint32_t shared) {
  v1::KernelSite site;
  site.set_grid_x(grid);
  site.set_grid_y(1);
  site.set_grid_z(1);
  site.set_block_x(block);
  site.set_block_y(1);
  site.set_block_z(1);
  site.set_registers_per_thread(registers);
  site.set_dynamic_shared_bytes(shared);
  return site;
}

double ShareOf(const v1::KernelSite& site) {
  return OccupancyOf(site, kH100).value_or(Occupancy{.share = -1}).share;
}

TEST(Occupancy, RegistersLimitTheBlocksOfAnSm) {
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(1056, 256, 64, 0)), 0.5);     // 4 blocks of 8 warps
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(1056, 256, 32, 0)), 1.0);     // 8 blocks
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(1056, 256, 255, 0)), 0.125);  // 1 block
}

TEST(Occupancy, SharedMemoryLimitsThem) {
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(1056, 256, 32, 100 << 10)), 0.25);  // 2 of 101 KiB in 228 KiB
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(1056, 256, 32, 227 << 10)), 0.125);
}

TEST(Occupancy, ASmallGridFillsNoSm) {
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(66, 256, 32, 0)), 0.0625);
  EXPECT_DOUBLE_EQ(OccupancyOf(SiteOf(66, 256, 32, 0), kH100)->blocks_per_sm, 0.5);
}

TEST(Occupancy, BlocksAreLimitedThemselves) {
  EXPECT_DOUBLE_EQ(ShareOf(SiteOf(132 * 100, 32, 16, 0)), 0.5);  // 32 blocks of one warp
}

TEST(Occupancy, IsAbsentWhereTheLimitsAreNotKnown) {
  Process::Device unknown = kH100;
  unknown.compute_major = 99;
  EXPECT_FALSE(OccupancyOf(SiteOf(1, 32, 32, 0), unknown).has_value());
  Process::Device undescribed = kH100;
  undescribed.multiprocessors = 0;
  EXPECT_FALSE(OccupancyOf(SiteOf(1, 32, 32, 0), undescribed).has_value());
  EXPECT_FALSE(OccupancyOf(SiteOf(0, 0, 0, 0), kH100).has_value());
  EXPECT_FALSE(OccupancyOf(SiteOf(1, 4096, 32, 0), kH100).has_value());
}

}  // namespace
}  // namespace gpuprobe::timeline
