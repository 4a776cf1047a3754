// Lengths in 16 bits: how near they come, and that a length is never taken for "none".
#include "collector/page/packed_cells.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gpuprobe::page {
namespace {

TEST(PackedCells, AreExactBelow4096NsAndNearAbove) {
  for (double ns = 0; ns < 4096; ++ns) ASSERT_EQ(UnpackCell(PackCell(ns)), ns);
  constexpr double kMostOff = 0.00025;
  for (double ns = 4096; ns < 1e12; ns *= 1.0137)
    ASSERT_NEAR(UnpackCell(PackCell(ns)) / ns, 1, kMostOff) << ns;
}

TEST(PackedCells, NoLengthIsNone) {
  for (const double ns : {1e13, 1e18, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(PackCell(ns), kNoCell) << ns;
    EXPECT_GT(UnpackCell(PackCell(ns)), 1e12) << ns;
  }
  for (const double ns : {0.0, -5.0, std::nan("")}) EXPECT_EQ(PackCell(ns), 0) << ns;
}

TEST(PackedCells, TextHasTheLowByteFirst) {
  EXPECT_EQ(PackCells(std::vector<uint16_t>{0x0201, 0x0403}), "AQIDBA==");
  EXPECT_EQ(PackCells({}), "");
}

}  // namespace
}  // namespace gpuprobe::page
