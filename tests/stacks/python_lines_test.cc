// Tables as CPython's Objects/*notab.txt and locations.md describe them, written by hand.
#include "stacks/python_lines.h"

#include <unistd.h>

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace gpuprobe::stacks {
namespace {

int32_t LineAt(LineTable kind, const std::vector<uint8_t>& table, int64_t offset, int32_t first = 10) {
  return FindLine(ProcessMemory(getpid()), kind, reinterpret_cast<uint64_t>(table.data()), table.size(),
                  offset, first);
}

TEST(PythonLines, Pairs) {
  // 0: line 10; 6: 11; 256 (255 + 1): 11 + 127 + 3; 260: back by 5.
  const std::vector<uint8_t> table = {6, 1, 250, 127, 0, 3, 4, 0xfb};
  EXPECT_EQ(LineAt(LineTable::kPairs, table, 0), 10);
  EXPECT_EQ(LineAt(LineTable::kPairs, table, 5), 10);
  EXPECT_EQ(LineAt(LineTable::kPairs, table, 6), 11);
  EXPECT_EQ(LineAt(LineTable::kPairs, table, 256), 141);
  EXPECT_EQ(LineAt(LineTable::kPairs, table, 260), 136);
  EXPECT_EQ(LineAt(LineTable::kPairs, table, -1), 10);
}

TEST(PythonLines, Ranges) {
  // [0, 4): 10; [4, 8): none; [8, 10): 12; [10, 20): 7.
  const std::vector<uint8_t> table = {4, 0, 4, 0x80, 2, 2, 10, 0xfb};
  EXPECT_EQ(LineAt(LineTable::kRanges, table, 3), 10);
  EXPECT_EQ(LineAt(LineTable::kRanges, table, 4), 0);
  EXPECT_EQ(LineAt(LineTable::kRanges, table, 8), 12);
  EXPECT_EQ(LineAt(LineTable::kRanges, table, 19), 7);
  EXPECT_EQ(LineAt(LineTable::kRanges, table, 20), 0);
}

TEST(PythonLines, Locations) {
  const std::vector<uint8_t> table = {
      0x80 | 13 << 3 | 0, 0x00,                 // 1 unit: line +0, no columns
      0x80 | 2 << 3 | 1,  0x35,                 // 2 units: same line, short columns
      0x80 | 11 << 3 | 0, 0x01, 0x02,           // 1 unit: line +1
      0x80 | 15 << 3 | 0,                       // 1 unit: no line
      0x80 | 14 << 3 | 0, 0x48, 0x02, 0, 1, 1,  // 1 unit: line + (8 | 2 << 6) / 2
      0x80 | 13 << 3 | 7, 0x03,                 // 8 units: line -1
  };
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 0), 10);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 2), 10);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 5), 10);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 6), 11);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 8), 0);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 10), 11 + 68);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 12), 11 + 67);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 27), 11 + 67);
  EXPECT_EQ(LineAt(LineTable::kLocations, table, 28), 0);
}

TEST(PythonLines, AnythingEnds) {
  std::mt19937 random(1);
  std::vector<uint8_t> table(3000);
  for (int i = 0; i < 500; ++i) {
    for (uint8_t& byte : table) byte = static_cast<uint8_t>(random());
    for (const LineTable kind : {LineTable::kPairs, LineTable::kRanges, LineTable::kLocations}) {
      EXPECT_GE(LineAt(kind, table, static_cast<int64_t>(random() % 10000)), 0);
    }
  }
  EXPECT_EQ(FindLine(ProcessMemory(getpid()), LineTable::kLocations, 16, ~uint64_t{0}, 4, 10), 0);
}

}  // namespace
}  // namespace gpuprobe::stacks
