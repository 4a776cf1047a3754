#include "injector/rows/varints.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuprobe::injector {
namespace {

std::string OneByOne(const std::vector<uint64_t>& values) {
  std::string out;
  for (uint64_t value : values) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
    out.push_back(static_cast<char>(value));
  }
  return out;
}

TEST(Varints, ABlockIsItsValuesOneByOne) {
  uint32_t random = 1;
  for (uint32_t count = 0; count <= kVarintBlock; ++count) {
    for (int most_bits = 1; most_bits <= 28; ++most_bits) {
      VarintBlock block = {};
      std::vector<uint64_t> values;
      uint32_t any = 0;
      for (uint32_t i = 0; i < count; ++i) {
        random = random * 1664525 + 1013904223;
        const uint32_t bits = 1 + (random >> 8) % static_cast<uint32_t>(most_bits);
        block.values[i] = (random >> 3) & ((1u << bits) - 1);
        values.push_back(block.values[i]);
        any |= block.values[i];
      }
      char out[kVarintBlock * 10];
      char* const end = block.Write(out, count, any);
      ASSERT_EQ(std::string(&out[0], end), OneByOne(values))
          << count << " values of " << most_bits << " bits";
    }
  }
}

TEST(Varints, ABlockWithTheValuesAtEveryBoundary) {
  VarintBlock block = {};
  std::vector<uint64_t> values;
  for (const uint32_t boundary : {1u << 7, 1u << 14, 1u << 21, 1u << 28}) {
    for (const uint32_t value : {boundary - 1, boundary, boundary + 1}) {
      if (value >> 28 != 0) continue;
      block.values[values.size()] = value;
      values.push_back(value);
    }
  }
  char out[kVarintBlock * 10];
  char* const end = block.Write(out, static_cast<uint32_t>(values.size()), ~0u);
  EXPECT_EQ(std::string(&out[0], end), OneByOne(values));
}

}  // namespace
}  // namespace gpuprobe::injector
